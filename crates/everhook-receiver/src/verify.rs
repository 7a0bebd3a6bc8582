//! Whether a request is its provider's, and which events are in it.
//!
//! The judgement is that of `everhook_domain::inbound`, the very code by which Everhook itself
//! takes webhooks in; there is no other here.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::header::HeaderPrefix;
use everhook_domain::inbound::{
    Answer, CertificateUrl, Context, ForwardedHeaders, Handshake, InboundRequest, Judgement,
    ReceivedItem, Rejection, SourceKind, judge,
};
use everhook_domain::source::{InvalidSource, SourceInput, SourceSettings};
use everhook_domain::time::{Clock as _, SystemClock, Timestamp};

/// How long a key is remembered at least if nothing else is set: twice as long as Everhook tries,
/// whose last attempt comes a day after the first.
pub const KEEP: Duration = Duration::from_secs(48 * 3_600);

/// Verifies the requests of one source: a provider, its secrets, and what else it needs. Cheap to
/// ask, and to be made once.
#[derive(Clone, Debug)]
pub struct Verifier {
    settings: SourceSettings,
}

/// Why there is no such verifier: everything that is wrong with its settings, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidVerifier(pub Vec<InvalidSource>);

impl fmt::Display for InvalidVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("webhooks cannot be verified with these settings")?;
        let mut joint = ": ";
        for fault in &self.0 {
            write!(f, "{joint}{fault}")?;
            joint = "; ";
        }
        Ok(())
    }
}

impl std::error::Error for InvalidVerifier {}

/// What a genuine request comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// Its events, in order: one, or those of an array, which may have none.
    Events(Vec<Event>),
    /// It is to be answered 2xx, and nothing is to be done: its body is empty, and
    /// `options.empty` is `ignore`.
    Ignored,
    /// The provider asks whether somebody is there.
    Handshake(Handshake),
}

/// What identifies an event, in a text that no other event of any source has:
/// `<source>:<the provider's id>`. Where two ids could be read as one, a hash follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKey {
    id: String,
    source: String,
}

impl EventKey {
    /// The key of an event that you identify yourself: of a source, whose name has no `:`, by an
    /// id that is never used twice in it.
    pub fn new(source: impl Into<String>, id: &str) -> Self {
        let source = source.into();
        Self { id: format!("{source}:{id}"), source }
    }

    /// A key as a table has it: the whole text, and the source.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored(id: String, source: String) -> Self {
        Self { id, source }
    }

    /// The whole text, as stores have it.
    pub fn as_str(&self) -> &str {
        &self.id
    }

    /// The name of the source, with which it begins.
    pub fn source(&self) -> &str {
        &self.source
    }
}

impl fmt::Display for EventKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// One event of a genuine request.
#[derive(Clone, PartialEq, Eq)]
pub struct Event {
    /// What identifies it: the same in every attempt of its provider.
    pub key: EventKey,
    /// A second key, where a timestamp is signed and the id is not: of the signed bytes. Under an
    /// id that is new, a guard that is known tells that somebody sends captured bytes again.
    pub guard: Option<EventKey>,
    /// `<source>.<the provider's word for what happened>`, else `<source>.received`.
    pub event_type: String,
    /// Of an array its item, in an array of one; `None`: the whole body, as it came.
    pub item: Option<Bytes>,
    /// Why it cannot be read, though it is genuine: the kind's bodies are JSON, and this is not.
    pub unreadable: Option<String>,
}

impl fmt::Debug for Event {
    /// Without the payload, which stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Event");
        debug.field("key", &self.key.id).field("event_type", &self.event_type);
        debug.field("unreadable", &self.unreadable).finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier of this kind (`stripe`, `github`, `message` for Everhook's own, …) that takes
    /// what any one of these secrets verifies. The source is named after the kind.
    ///
    /// # Errors
    /// [`InvalidVerifier`]: there is no such kind, or it needs more than secrets.
    pub fn new<S: Into<String>>(
        kind: &str,
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<Self, InvalidVerifier> {
        let secrets = secrets.into_iter().map(Into::into).collect();
        let kind = kind.to_owned();
        Self::with(SourceInput { kind, secrets, ..SourceInput::default() })
    }

    /// A verifier by the settings that a source of Everhook has: a name, `public_url` for kinds
    /// that sign the URL, `tolerance_s`, a `dedupe` rule of your own, `options`. Without a name it
    /// is named after the kind.
    ///
    /// # Errors
    /// [`InvalidVerifier`] says all that is wrong.
    pub fn with(mut input: SourceInput) -> Result<Self, InvalidVerifier> {
        if input.name.is_empty() {
            input.name = input.kind.replace('_', "-");
        }
        let settings = SourceSettings::parse(input).map_err(InvalidVerifier)?;
        Ok(Self { settings })
    }

    /// Whose webhooks are verified.
    pub fn kind(&self) -> SourceKind {
        self.settings.kind
    }

    /// The name of the source, with which keys and types begin.
    pub fn source(&self) -> &str {
        self.settings.name.as_str()
    }

    /// The largest body that is taken, in bytes: whoever reads it stops there.
    pub fn body_bytes_max(&self) -> usize {
        self.settings.options.body_max
    }

    /// The status for requests that do not verify: 401, unless `options.reject_status` says 400 or
    /// 403.
    pub fn reject_status(&self) -> u16 {
        self.settings.options.reject_status
    }

    /// How long its keys are to be remembered: as `window_s` says, else [`KEEP`], or longer where
    /// the provider tries for longer.
    pub fn keep(&self) -> Duration {
        self.settings.window.unwrap_or_else(|| self.settings.window().max(KEEP))
    }

    /// What this provider wants to be answered in place of the usual JSON, if anything, for what
    /// was processed and for duplicates.
    pub fn answer(&self, is_duplicate: bool) -> Option<Answer> {
        let own = self.settings.options.answer.as_ref().map(|own| Answer {
            status: own.status,
            headers: own.content_type.iter().map(|text| ("content-type", text.clone())).collect(),
            body: own.body.clone().into_bytes(),
        });
        own.or_else(|| self.settings.kind.answer(is_duplicate))
    }

    /// The headers of a request that are worth keeping with its events: without credentials, what
    /// belongs to the connection, and Everhook's own. With them go, as `X-Message-Received-Method`
    /// and `-Url`, the data of webhooks that are a GET.
    pub fn passed_on(&self, request: &InboundRequest<'_>) -> ForwardedHeaders {
        let called = self.settings.called(request.target);
        ForwardedHeaders::of(request, &called, &HeaderPrefix::default())
    }

    /// Whether this request, exactly as it came from the socket, is the provider's, and which
    /// events are in it. `now` is its time of arrival, which signed timestamps are compared with.
    ///
    /// # Errors
    /// [`Rejection`] says which check failed, without secrets: for your log, not for the sender.
    pub fn verify(
        &self,
        request: &InboundRequest<'_>,
        now: Timestamp,
    ) -> Result<Verified, Rejection> {
        self.judge(request, now, None)
    }

    /// As [`Self::verify`], by the machine's clock.
    ///
    /// # Errors
    /// [`Rejection`].
    pub fn verify_now(&self, request: &InboundRequest<'_>) -> Result<Verified, Rejection> {
        self.verify(request, SystemClock::start().wall())
    }

    /// As [`Self::verify`], with the certificate that [`Rejection::CertificateNeeded`] has asked
    /// for: its URL, whose host was checked, and the PEM text that is there.
    ///
    /// # Errors
    /// [`Rejection`].
    pub fn verify_with(
        &self,
        request: &InboundRequest<'_>,
        now: Timestamp,
        certificate: (&CertificateUrl, &[u8]),
    ) -> Result<Verified, Rejection> {
        self.judge(request, now, Some(certificate))
    }

    fn judge(
        &self,
        request: &InboundRequest<'_>,
        now: Timestamp,
        certificate: Option<(&CertificateUrl, &[u8])>,
    ) -> Result<Verified, Rejection> {
        let context = Context { source: &self.settings, now, certificate };
        Ok(match judge(request, &context)? {
            Judgement::Store(items) => {
                Verified::Events(items.into_iter().map(|item| self.event(item)).collect())
            }
            Judgement::Ignore => Verified::Ignored,
            Judgement::Handshake(handshake) => Verified::Handshake(handshake),
        })
    }

    fn event(&self, item: ReceivedItem) -> Event {
        let source = self.source();
        let guard = item.guard.map(|hash| {
            let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            EventKey::new(source, &format!("#guard={hex}"))
        });
        Event {
            key: EventKey::new(source, &item.key.text()),
            guard,
            event_type: item.event_type.as_str().to_owned(),
            item: item.body.map(Bytes::from),
            unreadable: item.unreadable,
        }
    }
}
