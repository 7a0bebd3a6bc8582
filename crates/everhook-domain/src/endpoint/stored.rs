//! The stored form of an endpoint's settings.
//!
//! What an older or newer version stored may be nothing that this one can use. Each part is read by
//! itself: one that cannot be used is kept as it is stored and named with the reason, so that the
//! endpoint is still there to be seen, repaired or deleted, and nothing else suffers from it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::EndpointSettings;
use crate::certificate::CaCertificates;
use crate::endpoint_url::EndpointUrl;
use crate::header::CustomHeaders;
use crate::subscription::Subscription;

/// A part of an endpoint, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Where requests go.
    Url,
    /// The owner's note.
    Description,
    /// Headers added to every request.
    Headers,
    /// Which published events it wants.
    EventTypes,
    /// Which received events it wants.
    Sources,
    /// What must hold besides.
    Conditions,
    /// The limit of requests begun in a second.
    RequestsPerSecond,
    /// The limit of requests under way.
    MaxInFlight,
    /// Who must have signed the server's certificate.
    CaCertificates,
    /// What signs its requests.
    Secret,
}

impl Part {
    /// The name of the member in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Description => "description",
            Self::Headers => "headers",
            Self::EventTypes => "event_types",
            Self::Sources => "sources",
            Self::Conditions => "conditions",
            Self::RequestsPerSecond => "requests_per_second",
            Self::MaxInFlight => "max_in_flight",
            Self::CaCertificates => "ca_certificates",
            Self::Secret => "secret",
        }
    }
}

/// The parts of stored settings that cannot be used; none for settings made by this version.
#[derive(Clone, Default)]
pub struct Unusable(Vec<UnusablePart>);

#[derive(Clone)]
struct UnusablePart {
    part: Part,
    detail: String,
    /// As it is stored. May hold credentials.
    stored: Box<RawValue>,
}

impl Unusable {
    /// Each part with the reason, a plain sentence without secrets.
    pub fn iter(&self) -> impl Iterator<Item = (Part, &str)> {
        self.0.iter().map(|unusable| (unusable.part, unusable.detail.as_str()))
    }

    /// Whether this part cannot be used.
    pub fn has(&self, part: Part) -> bool {
        self.0.iter().any(|unusable| unusable.part == part)
    }

    /// The part has been set anew.
    pub fn repaired(&mut self, part: Part) {
        self.0.retain(|unusable| unusable.part != part);
    }

    /// What to store for a part: what was found there while it cannot be used.
    fn or_stored<T: Serialize + ?Sized>(&self, part: Part, value: &T) -> Box<RawValue> {
        match self.0.iter().find(|unusable| unusable.part == part) {
            Some(unusable) => unusable.stored.clone(),
            None => to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned()),
        }
    }

    /// A part from its stored form; the default of its type where that cannot be used.
    fn read<T: Default>(
        &mut self,
        part: Part,
        stored: Box<RawValue>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        read(stored.get()).unwrap_or_else(|detail| {
            self.0.push(UnusablePart { part, detail, stored });
            T::default()
        })
    }
}

/// Without what is stored.
impl fmt::Debug for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

type Members = HashMap<String, Box<RawValue>>;

impl EndpointSettings {
    /// The stored form, JSON. Holds credentials: never shown, never logged. What could not be used
    /// is in it as it was found.
    pub fn to_stored(&self) -> String {
        let Self { url, description, headers, subscription, unusable, .. } = self;
        let wanted = BTreeMap::from([
            ("event_types", unusable.or_stored(Part::EventTypes, &subscription.event_types)),
            ("sources", unusable.or_stored(Part::Sources, &subscription.sources)),
            ("conditions", unusable.or_stored(Part::Conditions, &subscription.conditions)),
        ]);
        let per_second = unusable.or_stored(Part::RequestsPerSecond, &self.requests_per_second);
        let pem = self.ca_certificates.as_ref().map(CaCertificates::pem);
        let stored = BTreeMap::from([
            ("url", unusable.or_stored(Part::Url, url.expose())),
            ("description", unusable.or_stored(Part::Description, description)),
            ("headers", unusable.or_stored(Part::Headers, headers)),
            ("subscription", to_raw_value(&wanted).unwrap_or_else(|_| RawValue::NULL.to_owned())),
            ("requests_per_second", per_second),
            ("max_in_flight", unusable.or_stored(Part::MaxInFlight, &self.max_in_flight)),
            ("ca_certificates", unusable.or_stored(Part::CaCertificates, &pem)),
        ]);
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Reads the stored form. Neither `https_only` nor the header prefix is asked: a setting made
    /// later does not change what was accepted earlier. What cannot be used is named in
    /// [`EndpointSettings::unusable`] and stands as something harmless; of a text that is not a
    /// JSON object nothing can be.
    pub fn from_stored(text: &str) -> Self {
        let mut members: Members = serde_json::from_str(text).unwrap_or_else(|_| unreadable());
        let mut unusable = Unusable::default();
        let url = members.remove("url").unwrap_or_else(|| RawValue::NULL.to_owned());
        let url = unusable.read(Part::Url, url, |json| read_url(json).map(Some));
        let mut optional = |name: &str| members.remove(name);
        let description = optional("description")
            .map(|stored| unusable.read(Part::Description, stored, |json| as_type(json, "a text")));
        let headers = optional("headers")
            .map(|stored| unusable.read(Part::Headers, stored, CustomHeaders::from_stored));
        let ca_certificates = optional("ca_certificates")
            .map(|stored| unusable.read(Part::CaCertificates, stored, read_certificates));
        let subscription = optional("subscription").unwrap_or_else(|| RawValue::NULL.to_owned());
        let mut limit = |part: Part| {
            let stored = optional(part.as_str())?;
            unusable.read(part, stored, |json| match as_type(json, "a number")? {
                Some(0) => Err("the stored limit is 0: nothing could ever be sent".to_owned()),
                limit => Ok(limit),
            })
        };
        Self {
            requests_per_second: limit(Part::RequestsPerSecond),
            max_in_flight: limit(Part::MaxInFlight),
            url: url.unwrap_or_else(EndpointUrl::nowhere),
            description: description.unwrap_or_default(),
            headers: headers.unwrap_or_default(),
            ca_certificates: ca_certificates.flatten(),
            subscription: read_subscription(subscription.get(), &mut unusable),
            unusable,
        }
    }
}

/// Members none of which can be used: nothing that was set may be taken for not having been set.
fn unreadable() -> Members {
    let no_value = || RawValue::from_string("false".to_owned()).unwrap_or_default();
    let parts = [
        Part::Url,
        Part::Description,
        Part::Headers,
        Part::CaCertificates,
        Part::RequestsPerSecond,
        Part::MaxInFlight,
    ];
    parts.map(|part| (part.as_str().to_owned(), no_value())).into()
}

/// Reads the three lists. One that is missing in an object is the default one; where there is no
/// object, none of them can be used.
fn read_subscription(json: &str, unusable: &mut Unusable) -> Subscription {
    let mut lists: Members = serde_json::from_str(json).unwrap_or_else(|_| {
        let names = [Part::EventTypes, Part::Sources, Part::Conditions].map(Part::as_str);
        names.map(|name| (name.to_owned(), RawValue::NULL.to_owned())).into()
    });
    let mut list = |part: Part| {
        let stored = lists.remove(part.as_str());
        let stored = stored.map(|stored| unusable.read(part, stored, |json| one_list(part, json)));
        stored.unwrap_or_else(|| Some(Subscription::default()))
    };
    let event_types = list(Part::EventTypes).map(|only| only.event_types);
    let sources = list(Part::Sources).map(|only| only.sources);
    let conditions = list(Part::Conditions).map(|only| only.conditions);
    Subscription {
        event_types: event_types.unwrap_or_default(),
        sources: sources.unwrap_or_default(),
        conditions: conditions.unwrap_or_default(),
    }
}

/// A subscription of which only this list is meant.
fn one_list(part: Part, json: &str) -> Result<Option<Subscription>, String> {
    let name = part.as_str();
    serde_json::from_str(&format!("{{\"{name}\":{json}}}"))
        .map(Some)
        .map_err(|_| format!("the stored value is not a list of {name} that this version knows"))
}

fn read_url(json: &str) -> Result<EndpointUrl, String> {
    let text: String = as_type(json, "a text")?;
    EndpointUrl::parse(&text, false).map_err(|error| error.to_string())
}

fn read_certificates(json: &str) -> Result<Option<CaCertificates>, String> {
    let pem: Option<String> = as_type(json, "a text")?;
    let read = pem.map(|pem| CaCertificates::parse(&pem)).transpose();
    read.map_err(|error| format!("the stored text {error}"))
}

/// The error of a JSON reader would quote the value.
fn as_type<T: DeserializeOwned>(json: &str, kind: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|_| format!("the stored value is not {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Origin;
    use crate::subscription::Facts;

    const URL: &str = r#""url":"http://user:hunter2@a/x""#;

    /// Which parts of these stored settings cannot be used.
    #[track_caller]
    fn check(stored: &str, expected: &[Part]) -> EndpointSettings {
        let settings = EndpointSettings::from_stored(stored);
        let parts: Vec<_> = settings.unusable.iter().map(|(part, _)| part).collect();
        assert_eq!(parts, expected, "{stored}");
        // No secret is in what may be shown, and nothing is lost by storing it again.
        assert!(!format!("{settings:?}").contains("hunter2"), "{settings:?}");
        let again = EndpointSettings::from_stored(&settings.to_stored());
        assert_eq!(again.to_stored(), settings.to_stored());
        let parts: Vec<_> = again.unusable.iter().map(|(part, _)| part).collect();
        assert_eq!(parts, expected, "stored again: {stored}");
        settings
    }

    fn wants(settings: &EndpointSettings) -> bool {
        settings.wants(&Facts::new(Origin::Published, "a.b", None, b"{}"))
    }

    #[test]
    fn what_this_version_stores_can_be_used() {
        let whole =
            check(&format!("{{{URL}}}"), &[Part::EventTypes, Part::Sources, Part::Conditions]);
        assert!(!wants(&whole), "a subscription that is not there is not every event");
        let settings = check(&format!(r#"{{{URL},"subscription":{{}}}}"#), &[]);
        assert!(wants(&settings));
        assert!(settings.url.basic_auth().is_some());
    }

    #[test]
    fn each_part_fails_by_itself() {
        let with = |member: &str| format!(r#"{{{URL},"subscription":{{}},{member}}}"#);
        for (member, part) in [
            (r#""headers":{"x-a":"hunter2\nb: c"}"#, Part::Headers),
            (r#""headers":{"x-a":"hunter2","X-A":"1"}"#, Part::Headers),
            (r#""headers":{"x a":"hunter2"}"#, Part::Headers),
            (r#""headers":{"x-a":["hunter2"]}"#, Part::Headers),
            (r#""headers":"hunter2""#, Part::Headers),
            (r#""headers":{"content-length":"1"}"#, Part::Headers),
            (r#""headers":{"Host":"evil"}"#, Part::Headers),
            (r#""headers":{"webhook-id":"hunter2"}"#, Part::Headers),
            (r#""description":5"#, Part::Description),
            (r#""requests_per_second":"hunter2""#, Part::RequestsPerSecond),
            (r#""requests_per_second":0"#, Part::RequestsPerSecond),
            (r#""max_in_flight":-1"#, Part::MaxInFlight),
            (r#""ca_certificates":"hunter2""#, Part::CaCertificates),
            (r#""ca_certificates":["hunter2"]"#, Part::CaCertificates),
        ] {
            let settings = check(&with(member), &[part]);
            assert!(wants(&settings), "{member}");
            let (_, detail) = settings.unusable.iter().next().expect("a detail");
            assert!(!detail.contains("hunter2") && detail.len() > 20, "{detail}");
            let mut repaired = settings.clone();
            repaired.unusable.repaired(part);
            check(&repaired.to_stored(), &[]);
        }
        let named = check(&with(r#""headers":{"x-a":"\n"}"#), &[Part::Headers]);
        let (_, detail) = named.unusable.iter().next().expect("a detail");
        assert!(detail.contains("'x-a'") && detail.contains("line break"), "{detail}");
    }

    #[test]
    fn urls_that_cannot_be_used_lead_nowhere() {
        for url in ["5", "null", r#""gopher://hunter2""#, r#""http://hunter2 /""#] {
            let settings = check(&format!(r#"{{"url":{url},"subscription":{{}}}}"#), &[Part::Url]);
            assert_eq!(settings.url.to_string(), "http://unusable.invalid/");
            assert!(wants(&settings));
        }
    }

    #[test]
    fn without_a_condition_that_can_be_read_nothing_is_routed() {
        let with = |lists: &str| format!(r#"{{{URL},"subscription":{{{lists}}}}}"#);
        let broken = with(r#""event_types":["a.*"],"conditions":[{"pointer":"no"}]"#);
        let settings = check(&broken, &[Part::Conditions]);
        assert!(!wants(&settings));
        assert_eq!(settings.subscription.event_types.len(), 1, "it is still shown");
        assert!(!wants(&check(&with(r#""event_types":["*."]"#), &[Part::EventTypes])));
        assert!(wants(&check(&with(r#""sources":7"#), &[Part::Sources])));
    }

    #[test]
    fn of_what_is_not_json_nothing_can_be_used() {
        let all = [
            Part::Url,
            Part::Description,
            Part::Headers,
            Part::CaCertificates,
            Part::RequestsPerSecond,
            Part::MaxInFlight,
            Part::EventTypes,
            Part::Sources,
            Part::Conditions,
        ];
        for text in ["", "hunter2", "[]", "{\"url\"", "null"] {
            assert!(!wants(&check(text, &all)), "{text}");
        }
    }
}
