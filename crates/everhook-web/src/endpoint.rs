//! From a customer's bytes to an endpoint's settings, and what of an endpoint is shown.
//!
//! Shown is never a secret, a password or the value of a header that may be a credential: those are
//! masked. A mask that comes back is refused, so that reading, editing and sending back cannot
//! replace the real value with it.

use std::borrow::Cow;

use everhook_domain::address::AddressGuard;
use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint::{
    DESCRIPTION_BYTES_MAX, Endpoint, EndpointSettings, Part, Unusable,
};
use everhook_domain::endpoint_url::{EndpointUrl, Host, Scheme};
use everhook_domain::header::{CustomHeaders, HeaderPrefix};
use everhook_domain::health::EndpointHealth;
use everhook_domain::id::EndpointId;
use everhook_domain::subscription::{
    CONDITIONS_MAX, ConditionInput, EVENT_TYPES_MAX, SOURCES_MAX, Subscription, SubscriptionInput,
};
use everhook_domain::time::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::endpoint_health::ShownHealth;
use crate::json::{self, Members};
use crate::problem::{FieldErrors, Problem};

/// The most requests per second that an endpoint can be limited to.
pub const REQUESTS_PER_SECOND_MAX: u32 = 1_000_000;
/// The most requests in flight that an endpoint can be limited to.
pub const IN_FLIGHT_MAX: u32 = 65_536;

/// What is shown in place of a credential.
pub(crate) const MASK: &str = "***";
/// The only kind of endpoint that there is yet.
const KIND: &str = "http";
/// Kinds that are promised.
const LATER_KINDS: [&str; 3] = ["rabbitmq", "sqs", "bullmq"];
/// A header whose name has one of these in it may hold a credential.
const SECRET_WORDS: [&str; 6] = ["auth", "token", "key", "secret", "cookie", "password"];

const MEMBERS: &[&str] = &[
    "url",
    "kind",
    "options",
    "event_types",
    "sources",
    "conditions",
    "description",
    "headers",
    "requests_per_second",
    "max_in_flight",
    "ca_certificates",
];

/// What the installation allows endpoints to be.
#[derive(Clone, Debug, Default)]
pub struct EndpointRules {
    /// Only URLs that are spoken to through TLS.
    pub https_only: bool,
    /// Judges URLs with a literal address.
    pub address_guard: AddressGuard,
    /// Names that begin with it are ours.
    pub header_prefix: HeaderPrefix,
}

/// Reads the body of `POST /api/v1/endpoints`.
///
/// # Errors
/// `malformed-json`, `duplicate-member`, or `invalid` with everything that is wrong.
pub fn parse_endpoint(body: &[u8], rules: &EndpointRules) -> Result<EndpointSettings, Problem> {
    read(body, None, rules)
}

/// Reads the body of `PATCH /api/v1/endpoints/{id}`: a member that is there replaces the current
/// value, `null` sets it back to what it is when left out at creation (RFC 7396).
///
/// # Errors
/// As [`parse_endpoint`].
pub fn parse_endpoint_patch(
    body: &[u8],
    current: &EndpointSettings,
    rules: &EndpointRules,
) -> Result<EndpointSettings, Problem> {
    read(body, Some(current), rules)
}

fn read(
    body: &[u8],
    current: Option<&EndpointSettings>,
    rules: &EndpointRules,
) -> Result<EndpointSettings, Problem> {
    let members = Members::of_body(body, MEMBERS)?;
    let reader = Reader { members, current, rules };
    let mut errors = FieldErrors::default();
    reader.members.refuse_unknown(&mut errors);
    reader.kind_and_options(&mut errors);
    let url = reader.url(&mut errors);
    let description =
        reader.member("description", &mut errors, |c| c.description.clone(), description);
    let headers = reader.headers(&mut errors)?;
    let subscription = reader.subscription(&mut errors)?;
    let requests_per_second = reader.member(
        "requests_per_second",
        &mut errors,
        |c| c.requests_per_second,
        |value| json::whole_number(value, 1..=REQUESTS_PER_SECOND_MAX).map(Some),
    );
    let max_in_flight = reader.member(
        "max_in_flight",
        &mut errors,
        |c| c.max_in_flight,
        |value| json::whole_number(value, 1..=IN_FLIGHT_MAX).map(Some),
    );
    let ca_certificates = reader.ca_certificates(url.as_ref(), &mut errors);
    errors.check()?;
    Ok(EndpointSettings {
        url: url.ok_or_else(Problem::internal)?,
        description,
        headers,
        subscription,
        requests_per_second,
        max_in_flight,
        ca_certificates,
        unusable: reader.still_unusable(),
    })
}

struct Reader<'a> {
    members: Members<'a>,
    /// What is changed; `None` at creation.
    current: Option<&'a EndpointSettings>,
    rules: &'a EndpointRules,
}

impl<'a> Reader<'a> {
    /// A member that may be left out: then it is as it was, or as by default.
    fn member<T: Default>(
        &self,
        name: &str,
        errors: &mut FieldErrors,
        current: impl Fn(&EndpointSettings) -> T,
        parse: impl Fn(&'a RawValue) -> Result<T, Cow<'static, str>>,
    ) -> T {
        match self.members.get(name) {
            None => self.current.map(current).unwrap_or_default(),
            Some(value) if json::is_null(value) => T::default(),
            Some(value) => parse(value).unwrap_or_else(|detail| {
                errors.add("", name, detail);
                T::default()
            }),
        }
    }

    /// The stored parts that could not be used and were not set anew.
    fn still_unusable(&self) -> Unusable {
        let mut unusable = self.current.map(|current| current.unusable.clone()).unwrap_or_default();
        let parts: Vec<_> = unusable.iter().map(|(part, _)| part).collect();
        for part in parts.into_iter().filter(|part| self.members.get(part.as_str()).is_some()) {
            unusable.repaired(part);
        }
        unusable
    }

    fn kind_and_options(&self, errors: &mut FieldErrors) {
        if let Some(value) = self.members.optional("kind") {
            match json::text(value) {
                Ok(kind) if kind == KIND => {}
                Ok(kind) if LATER_KINDS.contains(&kind.as_ref()) => {
                    let detail = "this version delivers to \"http\" endpoints only, not to queues";
                    errors.add("", "kind", detail);
                }
                Ok(_) => errors.add("", "kind", "must be \"http\", or left out"),
                Err(detail) => errors.add("", "kind", detail),
            }
        }
        if let Some(value) = self.members.optional("options") {
            match json::object(value) {
                Ok(options) => {
                    for (name, _) in &options.members {
                        errors.add("/options", name, "an http endpoint has no options");
                    }
                }
                Err(detail) => errors.add("", "options", detail),
            }
        }
    }

    fn url(&self, errors: &mut FieldErrors) -> Option<EndpointUrl> {
        if let (None, Some(current)) = (self.members.get("url"), self.current) {
            return Some(current.url.clone());
        }
        let value = self.members.required("url", errors)?;
        let url = json::text(value).and_then(|text| parse_url(&text, self.rules));
        url.map_err(|detail| errors.add("", "url", detail)).ok()
    }

    fn ca_certificates(
        &self,
        url: Option<&EndpointUrl>,
        errors: &mut FieldErrors,
    ) -> Option<CaCertificates> {
        let parse = |value| {
            let text = json::text(value)?;
            CaCertificates::parse(&text).map(Some).map_err(|error| Cow::from(error.to_string()))
        };
        let current = |current: &EndpointSettings| current.ca_certificates.clone();
        let own = self.member("ca_certificates", errors, current, parse);
        if own.is_some() && url.is_some_and(|url| url.scheme() == Scheme::Http) {
            let detail = "an http URL has no certificate to check: use https, or set this to null";
            errors.add("", "ca_certificates", detail);
        }
        own
    }

    fn headers(&self, errors: &mut FieldErrors) -> Result<CustomHeaders, Problem> {
        let Some(value) = self.members.get("headers") else {
            return Ok(self.current.map(|current| current.headers.clone()).unwrap_or_default());
        };
        if json::is_null(value) {
            return Ok(CustomHeaders::default());
        }
        let object = match json::object(value) {
            Ok(object) => object,
            Err(detail) => {
                errors.add("", "headers", detail);
                return Ok(CustomHeaders::default());
            }
        };
        let members = Members::new(object, "/headers", &[])?;
        let mut pairs = Vec::new();
        for (name, value) in members.iter() {
            match json::text(value) {
                Ok(value) if value == MASK && may_be_secret(name) => {
                    errors.add("/headers", name, MASK_REFUSED);
                }
                Ok(value) => pairs.push((name.to_owned(), value.into_owned())),
                Err(detail) => errors.add("/headers", name, detail),
            }
        }
        let parsed = CustomHeaders::parse(pairs, &self.rules.header_prefix);
        Ok(parsed.unwrap_or_else(|problems| {
            for problem in problems {
                let detail = problem.rule.to_string();
                match problem.name {
                    Some(name) => errors.add("/headers", &name, detail),
                    None => errors.add("", "headers", detail),
                }
            }
            CustomHeaders::default()
        }))
    }

    fn subscription(&self, errors: &mut FieldErrors) -> Result<Subscription, Problem> {
        let input = SubscriptionInput {
            event_types: self.list::<_, EVENT_TYPES_MAX>("event_types", errors, text_item)?,
            sources: self.list::<_, SOURCES_MAX>("sources", errors, text_item)?,
            conditions: self.list::<_, CONDITIONS_MAX>("conditions", errors, condition_item)?,
        };
        let default = Subscription::default();
        let before = self.current.map_or(&default, |current| &current.subscription);
        let given = Subscription::parse(input).unwrap_or_else(|problems| {
            for problem in problems {
                errors.add_at(&problem.pointer, problem.detail);
            }
            default.clone()
        });
        Ok(Subscription {
            event_types: self.choose(
                "event_types",
                given.event_types,
                &before.event_types,
                &default.event_types,
            ),
            sources: self.choose("sources", given.sources, &before.sources, &default.sources),
            conditions: self.choose(
                "conditions",
                given.conditions,
                &before.conditions,
                &default.conditions,
            ),
        })
    }

    /// The list that was given, or the one before if none was, or the default in place of `null`.
    fn choose<T: Clone>(&self, name: &str, given: Vec<T>, before: &[T], default: &[T]) -> Vec<T> {
        match self.members.get(name) {
            None => before.to_vec(),
            Some(value) if json::is_null(value) => default.to_vec(),
            Some(_) => given,
        }
    }

    /// The items of a list, none if it is not there. In place of an item of the wrong type a
    /// harmless one stands, so that the others keep their places.
    fn list<T, const MAX: usize>(
        &self,
        name: &str,
        errors: &mut FieldErrors,
        item: impl Fn(&'a RawValue, &str, &mut FieldErrors) -> Result<T, Problem>,
    ) -> Result<Vec<T>, Problem> {
        let Some(value) = self.members.optional(name) else { return Ok(Vec::new()) };
        match json::items::<MAX>(value) {
            Ok(items) => (0..)
                .zip(items)
                .map(|(index, value)| item(value, &format!("/{name}/{index}"), errors))
                .collect(),
            Err(detail) => {
                errors.add("", name, detail);
                Ok(Vec::new())
            }
        }
    }
}

fn description(value: &RawValue) -> Result<String, Cow<'static, str>> {
    let text = json::text(value)?;
    if text.len() > DESCRIPTION_BYTES_MAX {
        return Err(Cow::from(format!("must have at most {DESCRIPTION_BYTES_MAX} bytes")));
    }
    Ok(text.into_owned())
}

fn parse_url(text: &str, rules: &EndpointRules) -> Result<EndpointUrl, Cow<'static, str>> {
    let url =
        EndpointUrl::parse(text, rules.https_only).map_err(|error| Cow::from(error.to_string()))?;
    if let Host::Ip(address) = url.host() {
        rules.address_guard.judge(*address).map_err(|blocked| Cow::from(blocked.to_string()))?;
    }
    if text.split(['/', '?']).nth(2).is_some_and(|authority| authority.contains(MASK)) {
        return Err(Cow::from(MASK_REFUSED));
    }
    Ok(url)
}

/// Harmless wherever a text is expected in a subscription.
const PLACEHOLDER: &str = "x";

fn text_item(value: &RawValue, at: &str, errors: &mut FieldErrors) -> Result<String, Problem> {
    Ok(json::text(value).map_or_else(
        |detail| {
            errors.add_at(at, detail);
            PLACEHOLDER.to_owned()
        },
        Cow::into_owned,
    ))
}

fn condition_item(
    value: &RawValue,
    at: &str,
    errors: &mut FieldErrors,
) -> Result<ConditionInput, Problem> {
    let object = match json::object(value) {
        Ok(object) => object,
        Err(detail) => {
            errors.add_at(at, detail);
            return Ok(ConditionInput {
                pointer: String::new(),
                equals: RawValue::NULL.to_owned(),
            });
        }
    };
    let members = Members::new(object, at.to_owned(), &["pointer", "equals"])?;
    members.refuse_unknown(errors);
    let pointer = members.required("pointer", errors).map(json::text);
    let pointer = match pointer {
        None => String::new(),
        Some(Ok(text)) => text.into_owned(),
        Some(Err(detail)) => {
            errors.add(at, "pointer", detail);
            String::new()
        }
    };
    let equals = members.required("equals", errors).unwrap_or(RawValue::NULL);
    Ok(ConditionInput { pointer, equals: equals.to_owned() })
}

/// Whether the value of a header with this name may be a credential.
pub(crate) fn may_be_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Why a mask is not taken for a value.
pub(crate) const MASK_REFUSED: &str = "*** is what is shown in place of a credential: send the \
     real value, or leave this member out to keep what is stored";

/// An endpoint as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownEndpoint<'a> {
    id: EndpointId,
    /// `null` where what is stored cannot be used.
    url: Option<String>,
    kind: &'static str,
    options: NoOptions,
    state: &'static str,
    disabled_at: Option<Timestamp>,
    disabled_reason: Option<&'static str>,
    health: ShownHealth,
    #[serde(flatten)]
    subscription: &'a Subscription,
    description: &'a str,
    headers: ShownHeaders<'a>,
    requests_per_second: Option<u32>,
    max_in_flight: Option<u32>,
    ca_certificates: Option<&'a str>,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    /// When the secrets before the newest stop signing.
    old_secrets_expire_at: Vec<Timestamp>,
    /// What is stored and cannot be used; until it is set anew nothing is sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unusable: Vec<ShownUnusable<'a>>,
    /// Only in the answers that make a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

impl<'a> ShownEndpoint<'a> {
    /// An endpoint as it is shown at `now`, without its secret.
    pub(crate) fn new(endpoint: &'a Endpoint, health: EndpointHealth, now: Timestamp) -> Self {
        let settings = &endpoint.settings;
        Self {
            id: endpoint.id,
            url: (!settings.unusable.has(Part::Url)).then(|| masked_url(&settings.url)),
            kind: KIND,
            options: NoOptions {},
            state: endpoint.state.as_str(),
            disabled_at: endpoint.disabled.map(|disabled| disabled.at),
            disabled_reason: endpoint.disabled.map(|disabled| disabled.reason.as_str()),
            health: ShownHealth::new(health),
            subscription: &settings.subscription,
            description: &settings.description,
            headers: ShownHeaders(&settings.headers),
            requests_per_second: settings.requests_per_second,
            max_in_flight: settings.max_in_flight,
            ca_certificates: settings.ca_certificates.as_ref().map(CaCertificates::pem),
            version: endpoint.version,
            created_at: endpoint.created_at,
            updated_at: endpoint.updated_at,
            old_secrets_expire_at: endpoint.secrets.expiries(now).collect(),
            unusable: endpoint.unusable().map(ShownUnusable::new).collect(),
            secret: None,
        }
    }

    /// With the secret that was made by this request: the only time that it is shown.
    pub(crate) fn with_secret(self, secret: &'a str) -> Self {
        Self { secret: Some(secret), ..self }
    }
}

/// A stored part that cannot be used, in the form of the errors of a problem.
#[derive(Debug, Serialize)]
struct ShownUnusable<'a> {
    pointer: String,
    detail: &'a str,
}

impl<'a> ShownUnusable<'a> {
    fn new((part, detail): (Part, &'a str)) -> Self {
        Self { pointer: format!("/{}", part.as_str()), detail }
    }
}

/// The options of the kind `http`.
#[derive(Debug, Serialize)]
struct NoOptions {}

/// Tells that there are credentials, not which.
fn masked_url(url: &EndpointUrl) -> String {
    match url.basic_auth() {
        None => url.to_string(),
        Some(_) => {
            let scheme = url.scheme().as_str();
            format!("{scheme}://{MASK}:{MASK}@{}{}", url.authority(), url.path_and_query())
        }
    }
}

/// Custom headers with the values that may be credentials masked.
#[derive(Debug)]
struct ShownHeaders<'a>(&'a CustomHeaders);

impl Serialize for ShownHeaders<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| {
            let value = match may_be_secret(name.as_str()) {
                true => Cow::from(MASK),
                false => String::from_utf8_lossy(value.as_bytes()),
            };
            (name.as_str(), value)
        }))
    }
}
