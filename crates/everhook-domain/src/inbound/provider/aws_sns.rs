//! `aws_sns`: Amazon SNS over HTTPS, and with it the mail and the events of Amazon SES,
//! <https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html>.
//!
//! JSON, called `text/plain`. RSA over some of its members, `name\nvalue\n` each, with SHA-1
//! (signature version 1, still the default) or SHA-256 (2). The key is in the certificate at
//! `SigningCertURL`, on a host of SNS; what is served there has no chain that could be checked, so
//! the host and its TLS are what is trusted. A source may instead pin certificates as its secrets.
//!
//! Anybody with an account there gets a signature that is right, so the topics must be set:
//! `topic_arns`. `MessageId` is the same in every attempt; the option `key: "ses_event"` takes what
//! happened to the mail in its place, where events are published more than once.

use std::borrow::Cow;

use super::{Facts, Found, Genuine, Provider, USUAL, check_secrets, check_usual};
use crate::inbound::certificate::{self, Signers};
use crate::inbound::json::Object;
use crate::inbound::judgement::Handshake;
use crate::inbound::public_key::{self, RsaHash};
use crate::inbound::ses;
use crate::inbound::{CertificateUrl, Context, InboundRequest, Rejection, mac, tolerance};
use crate::source::{InvalidSource, SourceOptions, SourceSettings};
use crate::time::Timestamp;

const TYPE: &str = "x-amz-sns-message-type";
const TOPICS: &str = "topic_arns";
const TOPICS_MAX: usize = 100;

/// What is signed, in this order, of events.
const OF_NOTIFICATION: [&str; 6] =
    ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
/// What is signed, in this order, of what is about the subscription.
const OF_SUBSCRIPTION: [&str; 7] =
    ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];

/// What identifies an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    MessageId,
    SesEvent,
}

/// See the module.
#[derive(Debug)]
pub(super) struct AwsSns;

impl Provider for AwsSns {
    fn facts(&self) -> &'static Facts {
        &Facts {
            word: "aws_sns",
            window_h: 24,
            needs_secret: false,
            options: &[TOPICS, "key"],
            ..USUAL
        }
    }

    fn check(&self, settings: &SourceSettings, faults: &mut Vec<InvalidSource>) {
        check_usual(self.facts(), settings, faults);
        check_secrets(settings, faults, certificate::fault);
        let topics = settings.options.own(TOPICS).and_then(|topics| topics.as_array());
        let is_arn = |topic: &serde_json::Value| {
            topic.as_str().is_some_and(|arn| arn.starts_with("arn:") && arn.contains(":sns:"))
        };
        let legal = topics.is_some_and(|topics| {
            (1..=TOPICS_MAX).contains(&topics.len()) && topics.iter().all(is_arn)
        });
        if !legal {
            let detail = format!(
                "is needed: the topics that are taken, 1 to {TOPICS_MAX}, each like \
                 arn:aws:sns:eu-west-1:123456789012:name, since anybody can sign for a topic of \
                 their own"
            );
            faults.push(InvalidSource::new(format!("/options/{TOPICS}"), detail));
        }
        key_rule(&settings.options, faults);
    }

    fn verify(
        &self,
        request: &InboundRequest<'_>,
        context: &Context<'_>,
    ) -> Result<Genuine, Rejection> {
        if request.described("x-amz-sns-rawdelivery") == Some("true") {
            let fault = "is true: nothing is signed then; switch raw message delivery off";
            return Err(Rejection::header("x-amz-sns-rawdelivery", fault));
        }
        let message = Message::read(request)?;
        let topics = context.source.options.own(TOPICS).and_then(|topics| topics.as_array());
        let topic = message.member("TopicArn")?;
        if !topics.is_some_and(|topics| topics.iter().any(|known| *known == *topic)) {
            return Err(Rejection::Signature("the topic is none of options.topic_arns".to_owned()));
        }
        let hash = match &*message.member("SignatureVersion")? {
            "1" => RsaHash::Sha1,
            "2" => RsaHash::Sha256,
            _ => {
                return Err(Rejection::Signature("SignatureVersion is neither 1 nor 2".to_owned()));
            }
        };
        let signature = mac::from_base64(&message.member("Signature")?)
            .ok_or_else(|| Rejection::Signature("the Signature is not base64".to_owned()))?;
        let signed = message.signed()?;
        let chains = match certificate::signers(context, message.certificate()?)? {
            Signers::Pinned(chains) => chains,
            Signers::Fetched(chain) => vec![chain],
        };
        let fits = |chain: &Vec<_>| {
            let first = chain.first();
            first.is_some_and(|it| public_key::rsa_fits(it, hash, signed.as_bytes(), &signature))
        };
        if !chains.iter().any(fits) {
            return Err(Rejection::mismatch());
        }
        let timestamp = message.member("Timestamp")?;
        let at = Timestamp::parse(&timestamp)
            .map_err(|_| Rejection::Signature("the Timestamp is not RFC 3339".to_owned()))?;
        tolerance::check(at, context)?;
        if message.kind == Kind::Confirmation {
            message.subscribe_url()?;
        }
        Ok(Genuine { signed_timestamp: Some(timestamp), signed: None })
    }

    fn handshake(&self, request: &InboundRequest<'_>, _: &Context<'_>) -> Option<Handshake> {
        let message = Message::read(request).ok()?;
        match message.kind {
            Kind::Confirmation => message.subscribe_url().ok().map(Handshake::Confirm),
            Kind::Notification | Kind::End => None,
        }
    }

    fn events<'a>(&self, request: &InboundRequest<'a>, context: &Context<'_>) -> Vec<Found<'a>> {
        let Ok(message) = Message::read(request) else {
            return vec![Found::unreadable("the body is not a message of SNS")];
        };
        let text = message.member("Message").unwrap_or_default();
        let event = match message.kind {
            Kind::Notification => ses::Event::read(&text),
            Kind::Confirmation | Kind::End => None,
        };
        let own_key = match key_rule(&context.source.options, &mut Vec::new()) {
            Key::SesEvent => event.as_ref().and_then(ses::Event::key),
            Key::MessageId => None,
        };
        let id = message.member("MessageId").ok();
        let key = own_key.or_else(|| id.map(|id| vec![id])).unwrap_or_default();
        let subscription =
            (message.kind == Kind::End).then(|| "UnsubscribeConfirmation".to_owned());
        let event_type = event.map(|event| event.event_type).or(subscription);
        vec![Found {
            key: key.into_iter().map(Cow::Owned).collect(),
            key_is_signed: true,
            event_type: event_type.map(Cow::Owned),
            ..Found::default()
        }]
    }
}

fn key_rule(options: &SourceOptions, faults: &mut Vec<InvalidSource>) -> Key {
    let words = [("message_id", Key::MessageId), ("ses_event", Key::SesEvent)];
    options.own_word("key", &words, Key::MessageId, faults)
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Notification,
    /// The subscription waits to be confirmed.
    Confirmation,
    /// The subscription has ended: told, and never undone from here.
    End,
}

/// A message whose header says the same as its body.
struct Message<'a> {
    kind: Kind,
    members: Object<'a>,
}

impl<'a> Message<'a> {
    fn read(request: &InboundRequest<'a>) -> Result<Self, Rejection> {
        let members = Object::parse(request.body)
            .ok_or_else(|| Rejection::Signature("the body is not a JSON object".to_owned()))?;
        let word = request.required(TYPE)?;
        let kind = match word {
            "Notification" => Kind::Notification,
            "SubscriptionConfirmation" => Kind::Confirmation,
            "UnsubscribeConfirmation" => Kind::End,
            _ => return Err(Rejection::header(TYPE, "is no type of message that is known")),
        };
        let message = Self { kind, members };
        if message.member("Type")? != word {
            return Err(Rejection::header(TYPE, "is not the Type in the body"));
        }
        Ok(message)
    }

    /// A member that is a text; it may be empty.
    fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.members.raw(name)?.get()).ok()
    }

    fn member(&self, name: &str) -> Result<String, Rejection> {
        self.text(name).ok_or_else(|| Rejection::Signature(format!("the body has no text {name}")))
    }

    /// What is signed.
    fn signed(&self) -> Result<String, Rejection> {
        let names: &[&str] = match self.kind {
            Kind::Notification => &OF_NOTIFICATION,
            Kind::Confirmation | Kind::End => &OF_SUBSCRIPTION,
        };
        let mut signed = String::new();
        for &name in names {
            let value = match name {
                "Subject" => self.text(name),
                _ => Some(self.member(name)?),
            };
            if let Some(value) = value {
                signed.extend([name, "\n", &value, "\n"]);
            }
        }
        Ok(signed)
    }

    fn certificate(&self) -> Result<CertificateUrl, Rejection> {
        let url = certificate::url(&self.member("SigningCertURL")?, is_host);
        let pem = url.filter(|(_, url)| is_certificate(url.path()) && url.query().is_none());
        let detail =
            "SigningCertURL is not https, a host of SNS and the .pem file of a certificate";
        pem.map(|(url, _)| url).ok_or_else(|| Rejection::Signature(detail.to_owned()))
    }

    fn subscribe_url(&self) -> Result<CertificateUrl, Rejection> {
        let url = certificate::url(&self.member("SubscribeURL")?, is_host);
        let url = url.filter(|(_, url)| url.path() == "/");
        let detail = "SubscribeURL is not https and a host of SNS";
        url.map(|(url, _)| url).ok_or_else(|| Rejection::Signature(detail.to_owned()))
    }
}

/// `sns.<region>.amazonaws.com`, in China with `.cn`. Beside the regions there are buckets of S3
/// under that domain, which anybody can name `sns`.
fn is_host(host: &str) -> bool {
    let Some(rest) = host.strip_prefix("sns.") else { return false };
    let china = rest.strip_suffix(".amazonaws.com.cn");
    let region = china.or_else(|| rest.strip_suffix(".amazonaws.com"));
    let in_china = |region: &str| region.starts_with("cn-");
    region.is_some_and(|it| is_region(it) && in_china(it) == china.is_some())
}

/// `eu-west-1` or `us-gov-east-1`: letters of a place, a direction, a number,
/// <https://docs.aws.amazon.com/general/latest/gr/sns.html>.
fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let (place, direction, number) = match *parts {
        [place, direction, number] | [place, "gov", direction, number] => {
            (place, direction, number)
        }
        _ => return false,
    };
    let all = |text: &str, legal: fn(&u8) -> bool| text.bytes().all(|byte| legal(&byte));
    place.len() == 2
        && (1..=2).contains(&number.len())
        && !direction.is_empty()
        && all(place, u8::is_ascii_lowercase)
        && all(direction, u8::is_ascii_lowercase)
        && all(number, u8::is_ascii_digit)
}

/// `/SimpleNotificationService-<hex>.pem`, as every certificate of SNS is called.
fn is_certificate(path: &str) -> bool {
    let name = path.strip_prefix("/SimpleNotificationService-");
    let digits = name.and_then(|name| name.strip_suffix(".pem")).unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_sns() {
        for host in [
            "sns.eu-west-1.amazonaws.com",
            "sns.ap-southeast-2.amazonaws.com",
            "sns.us-gov-west-1.amazonaws.com",
            "sns.cn-north-1.amazonaws.com.cn",
        ] {
            assert!(is_host(host), "{host}");
        }
        for host in [
            "sns.s3-us-west-2.amazonaws.com",
            "sns.s3-eu-west-1.amazonaws.com",
            "sns.s3.amazonaws.com",
            "sns.us-west-2.amazonaws.com.cn",
            "sns.cn-north-1.amazonaws.com",
            "sns.us-west-2-fips.amazonaws.com",
            "sns.us-west-.amazonaws.com",
            "sns.us--2.amazonaws.com",
            "sns.amazonaws.com",
            "sns..amazonaws.com",
            "sns.a.b.amazonaws.com",
            "s3.eu-west-1.amazonaws.com",
            "sns.eu-west-1.amazonaws.com.evil.test",
            "evil.sns.eu-west-1.amazonaws.com",
            "sns.eu-west-1.amazonaws.com.",
        ] {
            assert!(!is_host(host), "{host}");
        }
    }

    #[test]
    fn names_of_certificates() {
        for (path, expected) in [
            ("/SimpleNotificationService-0f9A.pem", true),
            ("/SimpleNotificationService-.pem", false),
            ("/SimpleNotificationService-0g.pem", false),
            ("/SimpleNotificationService-0f.der", false),
            ("/x/SimpleNotificationService-0f.pem", false),
            ("/SimpleNotificationService-0f/0f.pem", false),
            ("/x.pem", false),
            ("/", false),
        ] {
            assert_eq!(is_certificate(path), expected, "{path}");
        }
    }
}
