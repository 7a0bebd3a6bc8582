//! Who is let in where: every method of every route, asked with every kind of credentials.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everhook_domain::access::Scope;
use everhook_domain::access::jwt::JwtKeys;
use everhook_web::Access;
use everhook_web::api::{ANY_METHOD, Door, doors};
use http::StatusCode;
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Api, Reply, TOKEN};
use crate::keyed_posts::Stage;

const SECRET: &[u8] = b"a secret for tests, which has more than thirty-two bytes";
/// 2030-01-01T00:00:00Z.
const LATER_S: i64 = 1_893_456_000;

/// An installation that accepts JWTs under [`SECRET`].
pub(crate) fn with_jwt() -> Api {
    Api::with(|settings| {
        let keys = JwtKeys::default().with_secret(SECRET).expect("long enough");
        settings.access = Access::new(Sha256::digest(TOKEN).into()).with_jwt(keys);
    })
}

fn jwt(claims: &Value) -> String {
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!("{}.{}", encoded(r#"{"alg":"HS256"}"#), encoded(&claims.to_string()));
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), signed.as_bytes());
    format!("Bearer {signed}.{}", URL_SAFE_NO_PAD.encode(mac))
}

/// Credentials with this scope, of this tenant where the scope does not reach all.
fn scoped(scope: Scope, tenant: &str) -> String {
    match scope {
        Scope::Admin => jwt(&json!({"sub": "boss", "scope": "admin", "exp": LATER_S})),
        Scope::EventsWrite | Scope::Read | Scope::Manage => {
            jwt(&json!({"sub": "shop", "tenant": tenant, "scope": scope.as_str(), "exp": LATER_S}))
        }
    }
}

async fn ask(api: &Api, (method, path): (&str, &str), authorization: Option<&str>) -> Reply {
    let headers: Vec<_> = authorization.map(|value| ("authorization", value)).into_iter().collect();
    api.raw(method, path, &headers, b"").await
}

/// The methods that ask who calls, with the scope that they need.
fn guarded() -> impl Iterator<Item = (&'static str, &'static str, Scope)> {
    doors().filter_map(|(path, method, door)| match door {
        Door::Open => None,
        Door::Needs(scope) => Some((path, method, scope)),
    })
}

/// Everything that a caller could have changed.
async fn everything(api: &Api) -> Vec<Value> {
    let mut all = Vec::new();
    for (path, method, scope) in guarded().filter(|(path, ..)| !path.contains('{')) {
        if method == "GET" && scope != Scope::EventsWrite {
            all.push(api.get(path).await.expect(StatusCode::OK));
        }
    }
    assert!(all.len() > 5, "there are more lists");
    all
}

#[tokio::test]
async fn open_doors_are_few_and_known() {
    let open: Vec<_> = doors().filter(|(.., door)| *door == Door::Open).collect();
    let open: Vec<_> = open.iter().map(|(path, method, _)| (*path, *method)).collect();
    assert_eq!(open, [("/healthz", "GET"), ("/readyz", "GET"), ("/in/{source}", ANY_METHOD)]);
}

/// In `docs/access.md`: below it is what each call needs.
const GENERATED: &str = "<!-- From here on made from the table of routes, by the tests. -->";

/// So that no scope changes unseen. After a change that is meant: `EVERHOOK_GOLDEN=write cargo test
/// -p everhook-web --test api doors`.
#[test]
#[expect(clippy::disallowed_methods, reason = "whoever changes the table says so in a variable")]
fn the_page_says_what_each_call_needs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/access.md");
    let text = std::fs::read_to_string(path).expect("readable");
    let (intro, _) = text.split_once(GENERATED).expect("the line after which it is made");
    let mut page = format!("{intro}{GENERATED}\n\n| call | needs |\n| --- | --- |\n");
    for (path, method, needed) in guarded() {
        page += &format!("| `{method} {}` | `{needed}` |\n", path.replace("/api/v1", ""));
    }
    if std::env::var_os("EVERHOOK_GOLDEN").is_some_and(|mode| mode == "write") {
        std::fs::write(path, &page).expect("writable");
    }
    assert_eq!(std::fs::read_to_string(path).expect("readable"), page, "the table has changed");
}

#[tokio::test]
async fn nobody_comes_in_without_credentials_that_hold() {
    let api = with_jwt();
    let forged = {
        let mut token = scoped(Scope::Manage, "default");
        token.pop();
        token
    };
    let unsigned = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let claims = json!({"sub": "a", "scope": "admin", "exp": LATER_S}).to_string();
    let unsigned = format!("Bearer {unsigned}.{}.", URL_SAFE_NO_PAD.encode(claims));
    let expired = jwt(&json!({"sub": "a", "scope": "admin", "exp": 1_767_225_600}));
    let endless = jwt(&json!({"sub": "a", "scope": "admin"}));
    let before = everything(&api).await;
    for (path, method, _) in guarded() {
        for authorization in [
            None,
            Some("Bearer nobody-s-token"),
            Some("Basic dTpw"),
            Some(&*forged),
            Some(&*unsigned),
            Some(&*expired),
            Some(&*endless),
        ] {
            let reply = ask(&api, (method, path), authorization).await;
            assert_eq!(reply.status, 401, "{method} {path} {authorization:?}");
            assert_eq!(reply.slug(), "unauthorized");
            assert!(reply.header("www-authenticate").is_some_and(|it| it.starts_with("Bearer")));
        }
    }
    assert_eq!(everything(&api).await, before);
}

#[tokio::test]
async fn a_scope_opens_its_own_doors_and_no_other() {
    let api = with_jwt();
    let mut before = everything(&api).await;
    for (path, method, needed) in guarded() {
        for scope in Scope::ALL {
            let enough = [scope].into_iter().collect::<everhook_domain::access::Scopes>();
            let reply = ask(&api, (method, path), Some(&scoped(scope, "default"))).await;
            let what = format!("{method} {path} with {scope}");
            if enough.allow(needed) {
                assert!(![401, 403].contains(&reply.status), "{what}: {reply:?}");
                // An empty body is enough for some.
                before = everything(&api).await;
                continue;
            }
            assert_eq!((reply.status, reply.slug()), (403, "forbidden".to_owned()), "{what}");
            let detail = reply.json()["detail"].to_string();
            assert!(detail.contains(&format!("'{needed}'")), "{what}: {detail}");
            assert_eq!(everything(&api).await, before, "{what} has an effect");
        }
    }
}

#[tokio::test]
async fn what_is_another_tenant_s_is_answered_as_what_is_nobody_s() {
    let stage = Stage::on(with_jwt()).await;
    stage.api.create_tenant("other").await;
    let mut asked = 0;
    for (path, method, needed) in guarded().filter(|(path, ..)| path.contains("{id}")) {
        let all = ["events:write", "read", "manage"].join(" ");
        let foreign = json!({"sub": "shop", "tenant": "other", "scope": all, "exp": LATER_S});
        for (name, id) in &stage.names {
            let (prefix, _) = id.split_once('_').expect("a prefix");
            let nobody_s = format!("{prefix}_00000000000000000000000000");
            let ask = async |id: &str| {
                let path = path.replace("{id}", id);
                ask(&stage.api, (method, &path), Some(&jwt(&foreign))).await
            };
            let (theirs, nobody_s) = (ask(id).await, ask(&nobody_s).await);
            let what = format!("{method} {path} with the id of {name}");
            assert!((400..500).contains(&theirs.status), "{what}: {theirs:?}");
            assert_eq!(theirs.status == 403, needed == Scope::Admin, "{what}: {theirs:?}");
            assert_eq!((theirs.status, &theirs.body), (nobody_s.status, &nobody_s.body), "{what}");
            asked += 1;
        }
    }
    assert!(asked > 200, "only {asked} were asked for");
}

#[tokio::test]
async fn credentials_of_one_tenant_name_no_other() {
    let api = with_jwt();
    api.create_tenant("acme").await;
    let token = scoped(Scope::Read, "acme");
    for (named, expected) in [
        (None, 200),
        (Some("acme"), 200),
        (Some("default"), 403),
        (Some("nobody"), 403),
        (Some("Acme"), 400),
    ] {
        let mut headers = vec![("authorization", token.as_str())];
        headers.extend(named.map(|name| ("everhook-tenant", name)));
        let reply = api.raw("GET", "/api/v1/events", &headers, b"").await;
        assert_eq!(reply.status, expected, "{named:?}");
    }
    let gone = scoped(Scope::Read, "nobody");
    assert_eq!(ask(&api, ("GET", "/api/v1/events"), Some(&gone)).await.status, 404);
}

/// Two tokens of one account meet each other's keys; two accounts never do.
#[tokio::test]
async fn keys_are_an_account_s_whatever_its_token() {
    let api = with_jwt();
    let token = |account: &str, exp: i64| {
        let scope = "events:write";
        jwt(&json!({"sub": account, "tenant": "default", "scope": scope, "exp": exp}))
    };
    let publish = async |token: &str| {
        let headers = [
            ("authorization", token),
            ("content-type", "application/json"),
            ("idempotency-key", "k"),
        ];
        let reply = api.raw("POST", "/api/v1/events", &headers, br#"{"type":"a","data":1}"#).await;
        let replayed = reply.header("idempotency-replayed").is_some();
        (reply.expect(StatusCode::ACCEPTED)["id"].clone(), replayed)
    };
    let (first, replayed) = publish(&token("shop", LATER_S)).await;
    assert!(!replayed);
    assert_eq!(publish(&token("shop", LATER_S + 1)).await, (first.clone(), true));
    let (other, replayed) = publish(&token("till", LATER_S)).await;
    assert!(!replayed && other != first);
    let (admin, replayed) = publish(&format!("Bearer {TOKEN}")).await;
    assert!(!replayed && admin != first && admin != other);
}
