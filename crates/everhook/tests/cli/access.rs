//! Credentials besides the admin token: JWTs, made as a stranger would make them.

use std::process::Command;

use crate::process::{Server, TOKEN, TempDir, ended, everhook};

/// Makes a JWT with nothing but a shell and openssl.
const MAKE: &str = r#"
encoded() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }
signed=$(printf '{"alg":"%s"}' "$ALG" | encoded).$(printf '%s' "$CLAIMS" | encoded)
if [ "$ALG" = HS256 ]; then
  sign() { openssl dgst -sha256 -mac HMAC -macopt key:"$SECRET" -binary; }
  mac=$(printf '%s' "$signed" | sign | encoded)
else
  printf '%s' "$signed" > "$DIR/signed"
  mac=$(openssl pkeyutl -sign -inkey "$DIR/private.pem" -rawin -in "$DIR/signed" | encoded)
fi
printf '%s.%s' "$signed" "$mac""#;
const SECRET: &str = "a secret of more than thirty-two bytes for tests";
const CLAIMS: &str = r#"{"sub":"shop","tenant":"default","scope":"events:write","exp":4102444800}"#;

fn shell(dir: &TempDir, script: &str, alg: &str) -> String {
    let output = Command::new("sh")
        .args(["-euc", script])
        .env("DIR", &dir.0)
        .env("ALG", alg)
        .env("SECRET", SECRET)
        .env("CLAIMS", CLAIMS)
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn tokens_made_with_openssl_are_let_in_as_far_as_they_reach() {
    let (dir, data) = (TempDir::new(), TempDir::new());
    let secret = dir.file("secret", &format!("{SECRET}\n"), 0o600);
    let make_pair = "openssl genpkey -algorithm ed25519 -out \"$DIR/private.pem\" && openssl pkey \
                     -in \"$DIR/private.pem\" -pubout -out \"$DIR/public.pem\"";
    shell(&dir, make_pair, "");
    let public = dir.0.join("public.pem");
    let variables = [
        ("EVERHOOK_ADMIN_TOKEN", TOKEN),
        ("EVERHOOK_AUTH_JWT_HS256_SECRET_FILE", secret.as_str()),
        ("EVERHOOK_AUTH_JWT_ED25519_PUBLIC_KEY_FILE", public.to_str().expect("text")),
    ];
    let server = Server::start(&data.0, &variables);
    for alg in ["HS256", "EdDSA"] {
        let token = shell(&dir, MAKE, alg);
        let event = r#"{"type": "a.b", "data": 1}"#;
        let (status, _) = server.call(&token, "POST", "/api/v1/events", event);
        assert_eq!(status, 202, "{alg}");
        let (status, problem) = server.call(&token, "GET", "/api/v1/events", "");
        assert_eq!(status, 403, "{alg}");
        assert!(problem["detail"].to_string().contains("'read'"), "{problem}");
        let (status, problem) = server.call(&token[1..], "GET", "/api/v1/events", "");
        assert_eq!(status, 401, "{alg}");
        assert!(problem["detail"].to_string().contains("is not accepted"), "{problem}");
    }
}

#[test]
fn a_file_without_a_key_refuses_the_start_and_is_not_repeated() {
    let (dir, data) = (TempDir::new(), TempDir::new());
    let hs256 = "EVERHOOK_AUTH_JWT_HS256_SECRET_FILE";
    let ed25519 = "EVERHOOK_AUTH_JWT_ED25519_PUBLIC_KEY_FILE";
    let private = "-----BEGIN PRIVATE KEY-----\nkennwort\n-----END PRIVATE KEY-----";
    for (variable, path, expected) in [
        (hs256, dir.file("short", "kennwort", 0o600), "fewer than 32 bytes"),
        (hs256, dir.file("open", SECRET, 0o644), "every user of this machine can use"),
        (hs256, dir.0.join("nowhere").display().to_string(), "cannot be read: No such file"),
        (ed25519, dir.file("private", private, 0o600), "it is a private key"),
        (ed25519, dir.file("text", "kennwort", 0o644), "no public key for Ed25519"),
    ] {
        for command in [&["serve", "--data-dir", data.arg()][..], &["config", "check"]] {
            let (code, _, stderr) = ended(everhook(command).env(variable, &path));
            assert_eq!(code, 2, "{path}: {stderr}");
            assert!(stderr.contains(expected) && stderr.contains(&path), "{path}: {stderr}");
            assert!(!stderr.contains("kennwort"), "{stderr}");
        }
    }
    assert!(!data.0.exists(), "nothing was begun");
}
