//! `intercom`: <https://developers.intercom.com/docs/webhooks/setting-up-webhooks>.
//!
//! `X-Hub-Signature: sha1=<hex>`, HMAC-SHA1 under the client secret over the body. No timestamp is
//! signed. The `id` stays in every attempt, while `delivery_attempts` changes the body.

use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mac::{self, Spelling};
use crate::inbound::scheme::Single;
use crate::inbound::{Context, InboundRequest, Rejection};

const SCHEME: Single =
    Single { header: "x-hub-signature", prefix: "sha1=", spelling: Spelling::Hex };

/// See the module.
#[derive(Debug)]
pub(super) struct Intercom;

impl Provider for Intercom {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "intercom", ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let expected = context.text_keys().map(|key| mac::sha1(key, &[request.body]));
        mac::verify(&[SCHEME.signature(request)?], expected)?;
        Ok(Genuine::default())
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let made = draft.object(context.now, &[("topic", draft.event_type)]);
        let key = context.signing_key();
        Some(made.signed(draft, SCHEME.header, |made| {
            format!("{}{}", SCHEME.prefix, Spelling::Hex.write(&mac::sha1(key, &[&made.body])))
        }))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        vec![Found::by_members(request.body, "id", "topic")]
    }
}
