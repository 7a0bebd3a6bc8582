//! What Amazon SES tells of a mail: the JSON in the `Message` of an SNS notification,
//! <https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html>.

use super::json::{self, Object};

/// An event of SES.
pub(super) struct Event<'a> {
    /// `Bounce`, `Delivery`, `Received`, …
    pub(super) event_type: String,
    members: Object<'a>,
}

impl<'a> Event<'a> {
    /// Reads the text; `None` if it is anything else.
    pub(super) fn read(text: &'a str) -> Option<Self> {
        let members = Object::parse(text.as_bytes())?;
        let word = members.scalar("eventType").or_else(|| members.scalar("notificationType"))?;
        members.object("mail")?;
        Some(Self { event_type: word.into_owned(), members })
    }

    /// What identifies what happened: its kind, the mail, and the report about it, or else when it
    /// happened and to whom.
    pub(super) fn key(&self) -> Option<Vec<String>> {
        let mail = self.members.object("mail")?;
        let section = self.section();
        let of_section = |name| section.as_ref().and_then(|section| section.scalar(name));
        let mut key = vec!["ses".to_owned(), self.event_type.clone()];
        key.push(mail.scalar("messageId")?.into_owned());
        if let Some(report) = of_section("feedbackId") {
            key.push(report.into_owned());
            return Some(key);
        }
        let time = of_section("timestamp").or_else(|| mail.scalar("timestamp")).unwrap_or_default();
        let named = section.as_ref().and_then(|section| recipients(section, "recipients"));
        let to = named.or_else(|| recipients(&mail, "destination")).unwrap_or_default();
        key.extend([time.into_owned(), to]);
        Some(key)
    }

    /// The member that is about this kind of event.
    fn section(&self) -> Option<Object<'a>> {
        let name = match &*self.event_type {
            "Received" => "receipt".to_owned(),
            "Rendering Failure" => "failure".to_owned(),
            word => {
                let mut letters = word.chars();
                let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                first.into_iter().chain(letters).collect()
            }
        };
        self.members.object(&name)
    }
}

fn recipients(object: &Object<'_>, name: &str) -> Option<String> {
    let items = json::items(object.raw(name)?.get().as_bytes())?;
    let texts: Vec<_> = items.into_iter().filter_map(json::scalar).collect();
    Some(texts.join(","))
}
