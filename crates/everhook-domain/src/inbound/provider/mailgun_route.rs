//! `mailgun_route`: mail that a route of Mailgun hands on,
//! <https://documentation.mailgun.com/docs/mailgun/user-manual/receive-forward-store/>.
//!
//! A form, with files if the mail has some: the mail read out into fields, or whole in `body-mime`
//! where the URL of the route ends in `mime`. `signature` is the hexadecimal HMAC-SHA256 of
//! `timestamp` and `token`, without anything between them, under the webhook signing key: the rest
//! of the form is not signed. One request for each recipient that the route fits.

use super::mailgun;
use super::{Facts, Found, Genuine, Provider, USUAL};
use crate::inbound::form::{self, Form};
use crate::inbound::imitation::{Draft, Imitation};
use crate::inbound::mail::{self, Mail};
use crate::inbound::mime::Entity;
use crate::inbound::{Context, InboundRequest, MessageId, Rejection};

/// See the module.
#[derive(Debug)]
pub(super) struct MailgunRoute;

impl Provider for MailgunRoute {
    fn facts(&self) -> &'static Facts {
        &Facts { word: "mailgun_route", window_h: 24, sender_chooses_key: true, ..USUAL }
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        let form =
            Form::of_body(request).ok_or_else(|| Rejection::Signature(form::NO_FORM.to_owned()))?;
        let field = |name| form.text(name);
        mailgun::verify([field("timestamp"), field("token"), field("signature")], context)
    }

    fn imitate(&self, draft: &Draft<'_>, context: &Context<'_>) -> Option<Imitation> {
        let [timestamp, token, signature] = mailgun::sign(draft, context);
        let mut fields = vec![
            ("recipient", "support@example.com"),
            ("Message-Id", draft.id),
            ("subject", draft.event_type),
            ("body-plain", draft.data),
            ("timestamp", &timestamp),
            ("token", &token),
        ];
        if draft.signed {
            fields.push(("signature", &signature));
        }
        Some(Draft::form(&fields))
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, _: &Context<'_>) -> Vec<Found<'a>> {
        let Some(form) = Form::of_body(request) else {
            return vec![Found::unreadable(form::NO_FORM)];
        };
        let mail = match form.bytes("body-mime") {
            Some(mime) => Mail::parse(mime),
            None => fields(&form),
        };
        vec![mail.found(&[&form.text("recipient").unwrap_or_default()])]
    }
}

/// The mail from the fields that it was read out into. Headers are fields too, in the spelling of
/// the sender, and all of them are once more in `message-headers`.
fn fields(form: &Form<'_>) -> Mail {
    let headers = form.text("message-headers").map(|text| headers(&text)).unwrap_or_default();
    let listed = Mail::of_headers(&Entity::parse(headers.as_bytes()));
    let ids = ["Message-Id", "Message-ID", "message-id"];
    let id = ids.into_iter().find_map(|name| MessageId::parse(form.bytes(name)?));
    let or = |names: [&str; 2], listed: Vec<u8>| {
        names.into_iter().find_map(|name| form.bytes(name)).map_or(listed, <[u8]>::to_vec)
    };
    let texts = ["body-plain", "body-html"].into_iter().filter_map(|name| form.bytes(name));
    Mail {
        message_id: id.or(listed.message_id),
        from: or(["from", "From"], listed.from),
        date: or(["Date", "date"], listed.date),
        subject: or(["subject", "Subject"], listed.subject),
        parts: texts.map(mail::text).chain(form.files().map(<[u8]>::to_vec)).collect(),
    }
}

/// The headers of a mail from the JSON list of pairs, as lines.
fn headers(text: &str) -> String {
    let pairs: Vec<(String, String)> = serde_json::from_str(text).unwrap_or_default();
    let line = |(name, value): (String, String)| {
        format!("{name}: {}\r\n", value.replace(['\r', '\n'], " "))
    };
    pairs.into_iter().map(line).collect()
}
