//! How long senders wait for an answer, and so how long a handler has.

use std::time::Duration;

use everhook_domain::inbound::SourceKind;

/// In seconds, of the kinds of which it is known: by their documentation, or measured where that
/// says nothing. Of kinds whose senders differ (`hmac`, `none`, `cloudevents`) nobody knows it.
const KNOWN_S: &[(&str, u64)] = &[
    ("adyen", 10),
    ("aws_sns", 15),
    ("github", 10),
    ("hubspot", 5),
    ("intercom", 5),
    ("linear", 5),
    // Everhook's own `delivery.timeout`.
    ("message", 10),
    ("paddle", 5),
    ("shopify", 5),
    ("slack", 3),
    ("square", 10),
    // Recommended to senders.
    ("standard_webhooks", 15),
    ("stripe", 30),
    ("svix", 15),
    ("twilio", 15),
    ("vonage", 10),
    ("zendesk", 12),
];
/// Of the others: as Everhook waits.
const OTHERS_S: u64 = 10;

/// How long the senders of this kind wait for an answer; one that comes later is none, and the
/// event comes again.
pub fn patience(kind: SourceKind) -> Duration {
    let known = KNOWN_S.iter().find(|(word, _)| *word == kind.as_str());
    Duration::from_secs(known.map_or(OTHERS_S, |(_, seconds)| *seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_of_a_kind() {
        for (word, seconds) in KNOWN_S {
            let kind: SourceKind = word.parse().expect(word);
            assert_eq!(patience(kind), Duration::from_secs(*seconds), "{word}");
        }
        for (word, seconds) in [("shopify", 5), ("stripe", 30), ("message", 10), ("hmac", 10)] {
            assert_eq!(patience(word.parse().expect(word)), Duration::from_secs(seconds), "{word}");
        }
    }
}
