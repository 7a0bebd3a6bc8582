//! Rows about what is genuine.

use everhook_domain::inbound::Imitation;
use http::StatusCode;

use super::receiver::{HOUR, Signed};
use super::report::{ACCEPTED, BAD_SIGNATURE, CHANGED_BODY, LARGE_BODY, SLOW, Verdict};
use super::report::{MISSING_SIGNATURE, STALE_SIGNATURE, UNREAD};
use super::{Found, Trial, fail, pass};

/// JSON in a spelling that no program writes by itself: whoever verifies what it has parsed and
/// written again verifies other bytes.
const ODD_SPELLING: &str =
    r#"{ "row" :"accepted", "n":1.0,"e":1E2, "big":12345678901234567890,"t":"\u00e9 ✓ \/" }"#;

impl Trial {
    pub(super) async fn accepted(&self) -> Found {
        let event = self.receiver.event(ACCEPTED.name, 1);
        let made = self.receiver.make_of(&event.id, ODD_SPELLING, Signed::Now)?;
        self.receiver.must_accept(&made, "a genuine webhook").await?;
        if let Some(effects) = &self.effects {
            effects.must_be_once(&event.id).await?;
        }
        pass("answered 2xx")
    }

    pub(super) async fn bad_signature(&self) -> Found {
        let event = self.receiver.event(BAD_SIGNATURE.name, 1);
        self.refused(self.receiver.make(&event, Signed::Forged)?).await
    }

    pub(super) async fn missing_signature(&self) -> Found {
        let event = self.receiver.event(MISSING_SIGNATURE.name, 1);
        self.refused(self.receiver.make(&event, Signed::Not)?).await
    }

    pub(super) async fn stale_signature(&self) -> Found {
        let event = self.receiver.event(STALE_SIGNATURE.name, 1);
        self.refused(self.receiver.make(&event, Signed::Before(HOUR))?).await
    }

    pub(super) async fn changed_body(&self) -> Found {
        let event = self.receiver.event(CHANGED_BODY.name, 1);
        let mut made = self.receiver.make(&event, Signed::Now)?;
        // The last letter or digit, so that the body can be read as before.
        if let Some(byte) = made.body.iter_mut().rfind(|byte| byte.is_ascii_alphanumeric()) {
            *byte = if *byte == b'7' { b'8' } else { b'7' };
        }
        self.refused(made).await
    }

    /// What is not genuine is refused whatever its body is: who reads that first answers a body
    /// that cannot be read in another way, and lets anybody try his parser.
    pub(super) async fn unread(&self) -> Found {
        let event = self.receiver.event(UNREAD.name, 1);
        let forged = self.receiver.make(&event, Signed::Forged)?;
        if forged.headers == self.receiver.make(&event, Signed::Not)?.headers {
            let found = "the signature is in the body, which has to be read first";
            return Ok((Verdict::DoesNotApply, found.to_owned()));
        }
        let broken = Imitation { body: b"{\"id\": ".to_vec(), ..forged.clone() };
        let (whole, broken) =
            (self.receiver.send(&forged).await?, self.receiver.send(&broken).await?);
        if whole == broken {
            return pass(format!("refused with {broken}, as one that can be read"));
        }
        fail(format!("answered {broken}, and {whole} where the body can be read"))
    }

    pub(super) async fn slow(&self) -> Found {
        let event = self.receiver.event(SLOW.name, 1);
        let made = self.receiver.make(&event, Signed::Now)?;
        let status = self.receiver.send_within(&made, self.within).await?;
        if status.is_success() {
            return pass(format!("answered within {} s", self.within.as_secs()));
        }
        fail(format!("answered {status}"))
    }

    pub(super) async fn large_body(&self) -> Found {
        let mut event = self.receiver.event(LARGE_BODY.name, 1);
        event.data["pad"] = "".into();
        let least = self.receiver.make(&event, Signed::Now)?.body.len();
        event.data["pad"] = "x".repeat(self.body_bytes.saturating_sub(least)).into();
        let made = self.receiver.make(&event, Signed::Now)?;
        let bytes = made.body.len();
        self.receiver.must_accept(&made, &format!("a body of {bytes} bytes")).await?;
        if let Some(effects) = &self.effects {
            effects.must_be_once(&event.id).await?;
        }
        pass(format!("{bytes} bytes are accepted"))
    }

    /// Sends what should be refused.
    async fn refused(&self, made: Imitation) -> Found {
        if !self.receiver.should_refuse(&made) {
            let found = "the signature of this kind does not cover it";
            return Ok((Verdict::DoesNotApply, found.to_owned()));
        }
        match self.receiver.send(&made).await? {
            status @ (StatusCode::BAD_REQUEST
            | StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::UNPROCESSABLE_ENTITY) => pass(format!("refused with {status}")),
            status => fail(format!("answered {status}")),
        }
    }
}
