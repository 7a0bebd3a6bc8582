//! Webhooks that come in: two sources of one provider, what that provider sends, and what somebody
//! sends who only pretends to be it.

use everhook_domain::time::{Clock as _, SystemClock};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Where webhooks come in; both get the provider's same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// Its name.
    pub(crate) name: &'static str,
    secret: &'static str,
}

/// Every source.
pub(crate) const SOURCES: [Source; 2] =
    [Source { name: "shop", secret: "whsec_of-the-shop" }, Source { name: "mall", secret: "mall" }];
/// The provider's header; the handler is given it too.
pub(crate) const SIGNATURE: &str = "stripe-signature";
/// The provider's word for what happened.
const EVENT_TYPE: &str = "order.done";

impl Source {
    /// What makes it (`POST /api/v1/sources`).
    pub(crate) fn settings(&self) -> serde_json::Value {
        serde_json::json!({"name": self.name, "kind": "stripe", "secrets": [self.secret]})
    }

    /// The call that brings something to it.
    pub(crate) fn call(&self) -> String {
        format!("POST /in/{}", self.name)
    }

    /// The provider's signature of a body, made now.
    pub(crate) fn sign(&self, body: &str) -> String {
        let at = SystemClock::start().wall().as_secs();
        let mut mac = Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).expect("any key");
        mac.update(format!("{at}.{body}").as_bytes());
        let hex: String =
            mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("t={at},v1={hex}")
    }
}

/// What the provider sends, in a spelling that no program would choose when it writes JSON anew.
pub(crate) fn body(id: &str, data: &str) -> String {
    format!(r#"{{ "id":"{id}" ,"type" : "{EVENT_TYPE}","data":{data}}}"#)
}
