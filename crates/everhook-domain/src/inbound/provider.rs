//! What a kind of source is, and the table of kinds.

mod adyen;
mod aws_sns;
mod cloudevents;
mod github;
mod hmac;
mod hubspot;
mod intercom;
mod linear;
mod mailgun;
mod mailgun_route;
mod message;
mod none;
mod paddle;
mod paypal;
mod postmark;
mod sendgrid_events;
mod sendgrid_parse;
mod shopify;
mod slack;
mod square;
mod standard_webhooks;
mod stripe;
mod svix;
mod telnyx;
mod twilio;
mod vonage;
mod zendesk;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::imitation::{Draft, Imitation};
use super::json::Object;
use super::judgement::{Answer, Handshake};
use super::{Context, InboundRequest, Rejection};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};

/// Every kind: one line each. The order is the one that people are shown.
pub(super) static PROVIDERS: &[&dyn Provider] = &[
    &message::Message,
    &standard_webhooks::StandardWebhooks,
    &svix::Svix,
    // Products.
    &github::GitHub,
    &hubspot::HubSpot,
    &intercom::Intercom,
    &linear::Linear,
    &shopify::Shopify,
    &slack::Slack,
    &zendesk::Zendesk,
    // Payments.
    &adyen::Adyen,
    &paddle::Paddle,
    &paypal::Paypal,
    &square::Square,
    &stripe::Stripe,
    // Mail that comes in.
    &mailgun_route::MailgunRoute,
    &postmark::Postmark,
    &sendgrid_parse::SendgridParse,
    // What becomes of mail that is sent, and mail too.
    &aws_sns::AwsSns,
    &mailgun::Mailgun,
    &sendgrid_events::SendgridEvents,
    // Calls.
    &telnyx::Telnyx,
    &twilio::Twilio,
    &vonage::Vonage,
    // Anybody else.
    &cloudevents::CloudEvents,
    &hmac::Hmac,
    &none::None,
];

/// What of a kind can be told in a table.
#[derive(Debug)]
pub(super) struct Facts {
    /// The word in JSON, SQL and logs.
    pub(super) word: &'static str,
    /// The methods that it takes.
    pub(super) methods: &'static [&'static str],
    /// How long a dedupe key is remembered, in hours.
    pub(super) window_h: u64,
    /// Whether a source must have a secret.
    pub(super) needs_secret: bool,
    /// Whether the URL is signed, so that a source must have a `public_url`.
    pub(super) needs_url: bool,
    /// Whether the sender chooses the key, so that other content under a known key is a conflict
    /// to be looked at, and not just a body that the provider has changed between attempts.
    pub(super) sender_chooses_key: bool,
    /// The names of its own options.
    pub(super) options: &'static [&'static str],
}

/// What most kinds have.
pub(super) const USUAL: Facts = Facts {
    word: "",
    methods: &["POST"],
    window_h: 48,
    needs_secret: true,
    needs_url: false,
    sender_chooses_key: false,
    options: &[],
};

/// A genuine request: what its signature covers besides the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Genuine {
    /// The timestamp that is signed, as it was sent; `None` where none is.
    pub(super) signed_timestamp: Option<String>,
    /// All that is signed, where that is not the body: the body could be anybody's.
    pub(super) signed: Option<Vec<u8>>,
}

/// One event found in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// The parts of the dedupe key; empty where the kind's rule finds none.
    pub(super) key: Vec<Cow<'a, str>>,
    /// Whether the signature covers what the key is made of.
    pub(super) key_is_signed: bool,
    /// The provider's word for what happened.
    pub(super) event_type: Option<Cow<'a, str>>,
    /// What is forwarded, where that is not the whole body.
    pub(super) body: Option<Cow<'a, [u8]>>,
    /// What own rules look at with their pointers, where that is not the whole body: the bare
    /// item.
    pub(super) item: Option<Cow<'a, [u8]>>,
    /// What tells this content from another under the same key, where that is not the body: parts.
    pub(super) content: Option<Vec<Vec<u8>>>,
    /// Why it cannot be read: it is kept, and not run.
    pub(super) unreadable: Option<String>,
}

impl<'a> Found<'a> {
    /// A body that is a JSON object, in which these members identify the event and say its type.
    pub(super) fn by_members(body: &'a [u8], id: &str, event_type: &str) -> Self {
        let Some(object) = Object::parse(body) else {
            return Self::unreadable("the body is not a JSON object");
        };
        Self {
            key: object.scalar(id).into_iter().collect(),
            key_is_signed: true,
            event_type: object.scalar(event_type),
            ..Self::default()
        }
    }

    /// A body, or an item, that is kept and not run.
    pub(super) fn unreadable(reason: &str) -> Self {
        Self { unreadable: Some(reason.to_owned()), ..Self::default() }
    }
}

/// A kind of source.
pub(super) trait Provider: Sync + fmt::Debug {
    /// What can be told in a table.
    fn facts(&self) -> &'static Facts;

    /// How long a dedupe key is remembered.
    fn window(&self, _options: &SourceOptions) -> Duration {
        Duration::from_secs(self.facts().window_h * 3_600)
    }

    /// Notes what of the settings is not legal for the kind. To be extended by kinds whose secrets
    /// have a form or that have options of their own.
    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
    }

    /// Whether the request is genuine, on its raw bytes, before any of them is parsed where the
    /// scheme allows that.
    ///
    /// # Errors
    /// [`Rejection`] names the check that failed.
    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection>;

    /// A webhook as the provider would send it, where a shared secret is enough to sign one.
    fn imitate(&self, _draft: &Draft<'_>, _context: &Context<'_>) -> Option<Imitation> {
        None
    }

    /// What a request that needs no signature is answered: asked first.
    fn greeting(&self, _request: &InboundRequest<'_>, _context: &Context<'_>) -> Option<Answer> {
        None
    }

    /// What a genuine request that is no event is answered.
    fn handshake(
        &self,
        _request: &InboundRequest<'_>,
        _context: &Context<'_>,
    ) -> Option<Handshake> {
        None
    }

    /// The events in a genuine request; an array that is empty has none.
    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>>;

    /// What is answered for what is accepted (`duplicate`: was seen before); `None`: the usual
    /// JSON.
    fn answer(&self, _duplicate: bool) -> Option<Answer> {
        None
    }
}

/// What is not legal whatever the kind.
pub(super) fn check_usual(
    facts: &Facts,
    settings: &SourceSettings,
    faults: &mut Vec<InvalidSource>,
) {
    if facts.needs_secret && settings.secrets.is_empty() {
        let detail = "this kind needs at least one secret: the one that the provider shows";
        faults.push(InvalidSource::new("/secrets", detail));
    }
    if facts.needs_url && settings.public_url.is_none() {
        let detail = "this kind signs the URL: set the one that is registered at the provider";
        faults.push(InvalidSource::new("/public_url", detail));
    }
}

/// Notes of each secret why it cannot be one, if `fault` says so.
pub(super) fn check_secrets(
    settings: &SourceSettings,
    faults: &mut Vec<InvalidSource>,
    fault: impl Fn(&str) -> Option<&'static str>,
) {
    for (index, secret) in settings.secrets.iter().enumerate() {
        // What is empty has been noted already.
        let text = Some(secret.expose()).filter(|text| !text.is_empty());
        if let Some(detail) = text.and_then(&fault) {
            faults.push(InvalidSource::new(format!("/secrets/{index}"), detail));
        }
    }
}
