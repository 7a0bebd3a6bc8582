//! A route behind the layer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use everhook_receiver::store::Store;
use everhook_receiver::{SourceInput, Verifier, Webhook, WebhookLayer};
use http::{Request, StatusCode};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::backend::Kind;
use crate::hooked::{Hooked, failing};
use crate::world::{SECRET, attempt, send, verifier};
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(the_second_attempt_is_answered_without_the_handler),
        case(attempts_that_overlap_come_again),
        case(a_handler_that_fails_or_panics_gives_its_event_back),
        case(a_sender_that_hangs_up_ends_nothing),
        case(what_does_not_verify_reaches_nobody),
        case(what_is_too_large_is_not_read_on),
        case(of_an_array_the_handler_gets_what_is_new),
        case(handshakes_are_answered),
        case(a_store_that_is_away_is_told_the_sender),
        case(only_verified_routes_have_webhooks),
    ]
}

/// A route that tells for what it ran, as `<key> <bytes>`; it answers with what is next in the
/// list, then 200.
#[derive(Clone, Default)]
struct Route {
    ran: Arc<Mutex<Vec<String>>>,
    statuses: Arc<Mutex<Vec<u16>>>,
}

impl Route {
    fn failing(statuses: &[u16]) -> Self {
        let statuses = statuses.iter().rev().copied().collect();
        Self { statuses: Arc::new(Mutex::new(statuses)), ..Self::default() }
    }

    fn behind(&self, layer: WebhookLayer) -> Router {
        let route = self.clone();
        let handler = move |webhook: Webhook| async move {
            for event in webhook.events() {
                let bytes = webhook.bytes_of(event);
                let line = format!("{} {}", event.key, String::from_utf8_lossy(&bytes));
                route.ran.lock().unwrap().push(line);
            }
            let status = route.statuses.lock().unwrap().pop().unwrap_or(200);
            assert_ne!(status, 0, "a handler that panics");
            (StatusCode::from_u16(status).unwrap(), "the handler's own")
        };
        Router::new().route("/hooks", post(handler)).route_layer(layer)
    }

    fn ran(&self) -> Vec<String> {
        self.ran.lock().unwrap().clone()
    }
}

fn layer(store: &Arc<dyn Store>) -> WebhookLayer {
    WebhookLayer::new(verifier(), Arc::clone(store))
}

fn the_second_attempt_is_answered_without_the_handler(kind: Kind) {
    let world = kind.create();
    let route = Route::default();
    let [one, other] = world.nodes.each_ref().map(|store| route.behind(layer(store)));
    world.runtime.block_on(async {
        let first = send(&one, attempt("evt_1", "{}")).await;
        assert_eq!((first.status, &*first.body), (StatusCode::OK, "the handler's own"));
        for service in [&one, &other] {
            assert!(send(service, attempt("evt_1", "{}")).await.is_duplicate());
        }
        assert_eq!(route.ran(), ["message:evt_1 {}"]);
        send(&other, attempt("evt_2", "{}")).await;
        assert_eq!(route.ran().len(), 2);
    });
}

/// As when a provider gives up after seconds and sends again, while the handler is at work.
fn attempts_that_overlap_come_again(kind: Kind) {
    let world = kind.create();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let count = Arc::new(AtomicU32::new(0));
    let (telling, waiting, counting) = (begun.clone(), go_on.clone(), count.clone());
    let slow = move |_: Webhook| async move {
        counting.fetch_add(1, Ordering::SeqCst);
        telling.notify_one();
        waiting.notified().await;
    };
    let [one, other] = world
        .nodes
        .each_ref()
        .map(|store| Router::new().route("/hooks", post(slow.clone())).route_layer(layer(store)));
    world.runtime.block_on(async {
        let mut first = JoinSet::new();
        let service = one.clone();
        first.spawn(async move { send(&service, attempt("evt_1", "{}")).await });
        begun.notified().await;
        for service in [&one, &other] {
            let busy = send(service, attempt("evt_1", "{}")).await;
            assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
            assert!(busy.retry_after && busy.body.contains("event-in-progress"), "{busy:?}");
        }
        go_on.notify_one();
        assert_eq!(first.join_all().await[0].status, StatusCode::OK);
        assert!(send(&other, attempt("evt_1", "{}")).await.is_duplicate());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    });
}

fn a_handler_that_fails_or_panics_gives_its_event_back(kind: Kind) {
    let world = kind.create();
    let route = Route::failing(&[500, 404, 302, 0, 204]);
    let [one, other] = world.nodes.each_ref().map(|store| route.behind(layer(store)));
    world.runtime.block_on(async {
        for (service, expected) in
            [(&one, 500), (&other, 404), (&one, 302), (&other, 500), (&one, 204), (&other, 200)]
        {
            let answered = send(service, attempt("evt_1", "{}")).await;
            assert_eq!(answered.status.as_u16(), expected, "{answered:?}");
            assert_eq!(answered.is_duplicate(), expected == 200);
        }
        assert_eq!(route.ran().len(), 5);
    });
}

fn a_sender_that_hangs_up_ends_nothing(kind: Kind) {
    let world = kind.create();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (telling, waiting) = (begun.clone(), go_on.clone());
    let slow = move |_: Webhook| async move {
        telling.notify_one();
        waiting.notified().await;
    };
    let layer = layer(&world.nodes[0]);
    let route = Router::new().route("/hooks", post(slow)).route_layer(layer.clone());
    world.runtime.block_on(async {
        let mut first = JoinSet::new();
        let service = route.clone();
        first.spawn(async move { send(&service, attempt("evt_1", "{}")).await });
        begun.notified().await;
        first.shutdown().await;
        go_on.notify_one();
        layer.drain().await;
        assert!(send(&route, attempt("evt_1", "{}")).await.is_duplicate());
    });
}

fn what_does_not_verify_reaches_nobody(kind: Kind) {
    let world = kind.create();
    let route = Route::default();
    let service = route.behind(layer(&world.nodes[0]));
    world.runtime.block_on(async {
        let mut forged = attempt("evt_1", "{}");
        *forged.body_mut() = Body::from("{ }");
        let mut other_id = attempt("evt_1", "{}");
        other_id.headers_mut().insert("webhook-id", "evt_2".parse().unwrap());
        let mut stale = attempt("evt_1", "{}");
        stale.headers_mut().insert("webhook-timestamp", "1614265330".parse().unwrap());
        let unsigned = Request::post("/hooks").body(Body::from("{}")).unwrap();
        for request in [forged, other_id, stale, unsigned] {
            let refused = send(&service, request).await;
            assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
            assert!(refused.body.contains("urn:everhook:problem:unverified"), "{refused:?}");
        }
        assert_eq!(route.ran(), [""; 0]);
        // An id that was forged blocks nothing.
        assert_eq!(send(&service, attempt("evt_2", "{}")).await.body, "the handler's own");
    });
}

fn with_options(options: serde_json::Value) -> Verifier {
    let serde_json::Value::Object(options) = options else { panic!("an object") };
    Verifier::with(SourceInput {
        kind: "message".to_owned(),
        secrets: vec![SECRET.to_owned()],
        options,
        ..SourceInput::default()
    })
    .unwrap()
}

fn what_is_too_large_is_not_read_on(kind: Kind) {
    let world = kind.create();
    let route = Route::default();
    let verifier = with_options(serde_json::json!({ "body_max": 8, "empty": "reject" }));
    let service = route.behind(WebhookLayer::new(verifier, Arc::clone(&world.nodes[0])));
    world.runtime.block_on(async {
        for (body, expected) in [("12345678", 200), ("123456789", 413), ("", 400)] {
            let answered = send(&service, attempt(&format!("evt_{body}"), body)).await;
            assert_eq!(answered.status.as_u16(), expected, "{body}");
        }
        assert_eq!(route.ran().len(), 1);
    });
}

fn of_an_array_the_handler_gets_what_is_new(kind: Kind) {
    let world = kind.create();
    let route = Route::default();
    // HubSpot's oldest scheme: the hash of secret and body.
    let verifier = Verifier::with(SourceInput {
        kind: "hubspot".to_owned(),
        secrets: vec!["secret".to_owned()],
        public_url: Some("https://a.test".to_owned()),
        ..SourceInput::default()
    });
    let layer = WebhookLayer::new(verifier.unwrap(), Arc::clone(&world.nodes[0]));
    let service = route.behind(layer);
    let item = |event: u32| {
        let rest = r#""subscriptionId":2,"portalId":3,"appId":4,"occurredAt":5,"objectId":6"#;
        format!(r#"{{"eventId":{event},{rest},"subscriptionType":"contact.creation"}}"#)
    };
    let request = |events: &[u32]| {
        let items: Vec<_> = events.iter().map(|event| item(*event)).collect();
        let body = format!("[{}]", items.join(","));
        let signature = hubspot_v1("secret", &body);
        Request::post("/hooks")
            .header("x-hubspot-signature", signature)
            .header("x-hubspot-signature-version", "v1")
            .body(Body::from(body))
            .unwrap()
    };
    world.runtime.block_on(async {
        assert_eq!(send(&service, request(&[1, 2])).await.body, "the handler's own");
        let ran = route.ran();
        assert_eq!(ran.len(), 2);
        assert!(ran[0].ends_with(&format!(" [{}]", item(1))), "{ran:?}");
        assert_eq!(send(&service, request(&[2, 3, 1])).await.body, "the handler's own");
        assert!(route.ran()[2].ends_with(&format!(" [{}]", item(3))));
        assert!(send(&service, request(&[3, 2])).await.is_duplicate());
        assert_eq!(route.ran().len(), 3);
    });
}

fn hubspot_v1(secret: &str, body: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(format!("{secret}{body}"));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn handshakes_are_answered(kind: Kind) {
    let world = kind.create();
    let route = Route::default();
    let verifier = Verifier::new("cloudevents", [""; 0]).unwrap();
    let service = Router::new()
        .fallback_service(route.behind(WebhookLayer::new(verifier, Arc::clone(&world.nodes[0]))));
    world.runtime.block_on(async {
        let asked = Request::options("/hooks")
            .header("webhook-request-origin", "a.test")
            .body(Body::empty())
            .unwrap();
        assert_eq!(send(&service, asked).await.status, StatusCode::OK);
        let other = Request::put("/hooks").body(Body::empty()).unwrap();
        assert_eq!(send(&service, other).await.status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(route.ran(), [""; 0]);
    });
}

fn a_store_that_is_away_is_told_the_sender(kind: Kind) {
    let world = kind.create();
    for (step, ran) in [("claim:before", 0), ("claim:after", 0), ("finish:before", 1)] {
        let inner = Arc::clone(&world.nodes[0]);
        let away: Arc<dyn Store> = Arc::new(Hooked { inner, hook: failing(move |at| at == step) });
        let route = Route::default();
        let service = route.behind(layer(&away));
        let answered = world.runtime.block_on(send(&service, attempt(step, "{}")));
        assert_eq!(answered.status, StatusCode::SERVICE_UNAVAILABLE, "{step}");
        assert!(answered.retry_after && answered.body.contains("store-unavailable"));
        assert_eq!(route.ran().len(), ran, "{step}");
    }
}

fn only_verified_routes_have_webhooks(kind: Kind) {
    let world = kind.create();
    let bare = Router::new().route("/hooks", post(|_: Webhook| async {}));
    let verified = bare.clone().route_layer(WebhookLayer::verifying(verifier()));
    world.runtime.block_on(async {
        let answered = send(&bare, attempt("evt_1", "{}")).await;
        assert_eq!(answered.status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(answered.body.contains("WebhookLayer"));
        // Without a store each attempt reaches the handler.
        for _ in 0..2 {
            assert_eq!(send(&verified, attempt("evt_1", "{}")).await.status, StatusCode::OK);
        }
    });
}

/// Without a store, whose time cannot be stopped.
pub(crate) fn a_slow_handler_is_told_of_in_the_log() {
    let slow = |_: Webhook| async { tokio::time::sleep(Duration::from_secs(9)).await };
    let quick = |_: Webhook| async { tokio::time::sleep(Duration::from_secs(7)).await };
    let layer = WebhookLayer::verifying(verifier());
    let routes =
        Router::new().route("/slow", post(slow)).route("/hooks", post(quick)).route_layer(layer);
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        send(&routes, attempt("evt_1", "{}")).await;
        assert_eq!(log.text(), "");
        let mut request = attempt("evt_2", "{}");
        *request.uri_mut() = "/slow".parse().unwrap();
        assert_eq!(send(&routes, request).await.status, StatusCode::OK);
    });
    let told = log.text();
    assert!(told.contains("patience_s=10") && told.contains("source=\"message\""), "{told}");
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
