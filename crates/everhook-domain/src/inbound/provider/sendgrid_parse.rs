//! `sendgrid_parse`: mail that Inbound Parse hands on,
//! <https://www.twilio.com/docs/sendgrid/for-developers/parsing-email>.
//!
//! A form with files: the mail read out into fields, or whole in `email`. It is signed as events
//! are if its security policy says so; the secret then is the public key. Else the secret is the
//! `user:password` in the URL of the webhook, or the option `unsigned` says that knowing the URL is
//! enough. A failed delivery is tried again for days.

use super::sendgrid_events;
use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::form::{self, Form};
use crate::inbound::json::Object;
use crate::inbound::mail::{self, Mail};
use crate::inbound::mime::Entity;
use crate::inbound::{Context, InboundRequest, Rejection, basic, public_key};
use crate::source::{InvalidSource, SourceSettings};

/// See the module.
#[derive(Debug)]
pub(super) struct SendgridParse;

impl Provider for SendgridParse {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "sendgrid_parse",
            window_h: 96,
            needs_secret: false,
            sender_chooses_key: true,
            options: &["unsigned"],
            ..USUAL
        }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, |text| {
            let detail = "must be the public key of the security policy, in base64, or \
                          user:password of the webhook's URL";
            (!is_credentials(text) && public_key::p256(text).is_none()).then_some(detail)
        });
        match settings.options.own("unsigned").map(|value| value.as_bool()) {
            Some(None) => {
                faults.push(InvalidSource::new("/options/unsigned", "must be true or false"));
            }
            Some(Some(true)) if !settings.secrets.is_empty() => {
                let detail = "there are secrets to verify with: remove them or this option";
                faults.push(InvalidSource::new("/options/unsigned", detail));
            }
            Some(Some(true)) => {}
            None | Some(Some(false)) if settings.secrets.is_empty() => {
                let detail = "this kind needs the public key of the security policy, or \
                              user:password of the webhook's URL; or set options.unsigned to take \
                              mail from whoever knows the URL";
                faults.push(InvalidSource::new("/secrets", detail));
            }
            None | Some(Some(false)) => {}
        }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        if context.source.secrets.is_empty() {
            let unsigned = context.source.options.own("unsigned").and_then(|it| it.as_bool());
            return match unsigned {
                Some(true) => Ok(Genuine::default()),
                Some(false) | None => Err(Rejection::no_secret()),
            };
        }
        let texts = context.source.secrets.iter().map(|secret| secret.expose());
        let (credentials, keys): (Vec<_>, Vec<_>) = texts.partition(|text| is_credentials(text));
        // With both, a request that has a signature is not let in by a password.
        let is_signed = request.headers.contains_key(sendgrid_events::SIGNATURE);
        if credentials.is_empty() || (is_signed && !keys.is_empty()) {
            let keys = keys.into_iter().filter_map(public_key::p256);
            return sendgrid_events::verify(request, context, keys);
        }
        basic::verify(request, credentials.into_iter().map(str::as_bytes))?;
        Ok(Genuine::default())
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(form) = Form::of_body(request) else {
            return vec![Found::unreadable(form::NO_FORM)];
        };
        let mail = match form.bytes("email") {
            Some(mime) => Mail::parse(mime),
            None => fields(&form),
        };
        let envelope = form.bytes("envelope").and_then(Object::parse);
        let to = envelope.and_then(|envelope| envelope.raw("to"));
        let to: Option<Vec<String>> = to.and_then(|to| serde_json::from_str(to.get()).ok());
        let to = to.or_else(|| form.text("to").map(|to| vec![to.into_owned()]));
        let mailboxes: Vec<_> = to.iter().flatten().map(String::as_str).collect();
        // The signature, if there is one, covers the whole form.
        vec![Found { key_is_signed: true, ..mail.found(&mailboxes) }]
    }
}

/// No base64 has a colon.
fn is_credentials(text: &str) -> bool {
    text.contains(':')
}

/// The mail from the fields that it was read out into; `headers` has those of the mail.
fn fields(form: &Form<'_>) -> Mail {
    let headers = form.bytes("headers").unwrap_or_default();
    let listed = Mail::of_headers(&Entity::parse(headers));
    let texts = ["text", "html"].into_iter().filter_map(|name| form.bytes(name));
    Mail {
        from: form.bytes("from").map_or(listed.from, <[u8]>::to_vec),
        subject: form.bytes("subject").map_or(listed.subject, <[u8]>::to_vec),
        parts: texts.map(mail::text).chain(form.files().map(<[u8]>::to_vec)).collect(),
        ..listed
    }
}
