//! A mail: what identifies it, and what tells it from another.
//!
//! The key is its Message-ID and the mailbox that it came to: one mail to two mailboxes is two
//! events. The sender chooses the Message-ID, so anybody could take another's; a mail with the same
//! key and other content is therefore a conflict, never a duplicate. Content is what its reader
//! sees (From, Date, Subject and the decoded parts), since every hop adds headers of its own and
//! may write boundaries and encodings anew.

use std::borrow::Cow;

use super::MessageId;
use super::mime::{Entity, one_line};
use super::provider::Found;
use crate::digest;

/// A mail, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Its id, if it has one.
    pub(super) message_id: Option<MessageId>,
    /// The header of this name.
    pub(super) from: Vec<u8>,
    /// The header of this name.
    pub(super) date: Vec<u8>,
    /// The header of this name.
    pub(super) subject: Vec<u8>,
    /// Texts and attached files, decoded.
    pub(super) parts: Vec<Vec<u8>>,
}

impl Mail {
    /// Reads a whole mail as it goes over the wire (RFC 5322, RFC 2045).
    pub(super) fn parse(mime: &[u8]) -> Self {
        let entity = Entity::parse(mime);
        let parts = entity.leaves().into_iter().map(|(media_type, bytes)| {
            let is_text = media_type.is_empty() || media_type.starts_with("text/");
            if is_text { text(&bytes) } else { bytes }
        });
        Self { parts: parts.collect(), ..Self::of_headers(&entity) }
    }

    /// What the headers say.
    pub(super) fn of_headers(entity: &Entity<'_>) -> Self {
        Self {
            message_id: MessageId::first(entity.all("message-id")),
            from: entity.first("from").unwrap_or_default(),
            date: entity.first("date").unwrap_or_default(),
            subject: entity.first("subject").unwrap_or_default(),
            parts: Vec::new(),
        }
    }

    /// The event that the mail is for the mailboxes that it came to. Without a Message-ID its
    /// content takes the place; of an empty mail there is no key at all.
    pub(super) fn found(self, mailboxes: &[&str]) -> Found<'static> {
        let is_empty = [&self.from, &self.date, &self.subject].iter().all(|text| text.is_empty())
            && self.parts.iter().all(Vec::is_empty);
        let mut content = vec![one_line(&self.from), one_line(&self.date), one_line(&self.subject)];
        content.extend(self.parts);
        let identity = match self.message_id {
            Some(id) => Some(id.as_str().to_owned()),
            None if is_empty => None,
            None => Some(fingerprint(&content)),
        };
        let key = identity.map(|identity| vec![Cow::Owned(identity), Cow::Owned(scope(mailboxes))]);
        Found { key: key.unwrap_or_default(), content: Some(content), ..Found::default() }
    }
}

/// A text without what a hop may change: the kind of line breaks, and those at its end.
pub(super) fn text(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.trim_ascii_end().split(|&byte| byte == b'\n');
    let lines: Vec<_> = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    lines.join(&b'\n')
}

/// The mailboxes in one order, without regard to case, which no mailbox is told apart by.
fn scope(mailboxes: &[&str]) -> String {
    let mut names: Vec<_> = mailboxes.iter().map(|name| name.trim().to_ascii_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

fn fingerprint(content: &[Vec<u8>]) -> String {
    format!("content={}", digest::hex(&digest::of_parts(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAIL: &str = "Received: from a by b; Mon, 1 Jan 2024 00:00:00 +0000\r\n\
        From: Alice <alice@a.test>\r\nTo: support@b.test\r\n\
        Date: Mon, 1 Jan 2024 00:00:00 +0000\r\n\
        Subject: A long\r\n subject\r\nMessage-ID:\r\n <One@a.test>\r\n\
        Content-Type: multipart/mixed; boundary=one\r\n\r\n\
        --one\r\n\r\nGr\u{fc}\u{df}e\r\nA.\r\n--one\r\nContent-Type: image/png\r\n\
        Content-Transfer-Encoding: base64\r\n\r\nAAEC\r\n--one--\r\n";

    fn found(mail: &str) -> Found<'static> {
        Mail::parse(mail.as_bytes()).found(&["support@b.test"])
    }

    /// Whether two mails are told apart.
    fn check(one: &str, other: &str, same_key: bool, same_content: bool) {
        let (one, other) = (found(one), found(other));
        assert_eq!(one.key == other.key, same_key, "{:?} {:?}", one.key, other.key);
        assert_eq!(one.content == other.content, same_content, "{one:?} {other:?}");
    }

    #[test]
    fn case_097_another_hop_changes_nothing() {
        let hop = format!("Received: from b by c; today\r\nX-Spam: no\r\n{MAIL}");
        check(
            MAIL,
            &hop.replace("=one", "=\"two three\"").replace("--one", "--two three"),
            true,
            true,
        );
        let encoded = MAIL
            .replace(
                "--one\r\n\r\nGr",
                "--one\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr",
            )
            .replace("\u{fc}\u{df}", "=C3=BC=C3=\r\n=9F");
        check(MAIL, &encoded, true, true);
        check(MAIL, &MAIL.replace("\r\n subject", " \r\n\t subject"), true, true);
        check(MAIL, &MAIL.replace("\r\n", "\n"), true, true);
        check(MAIL, &MAIL.replace("Message-ID:\r\n", "message-id:"), true, true);
        assert_eq!(found(MAIL).key, ["One@a.test", "support@b.test"]);
    }

    #[test]
    fn case_042_and_112_other_content_under_one_id_is_told_apart() {
        for (from, to) in [
            ("Alice", "Mallory"),
            ("1 Jan 2024 00:00:00 +0000\r\nSub", "2 Jan 2024 00:00:00 +0000\r\nSub"),
            ("A long", "Another"),
            ("e\r\nA.", "e\r\nB."),
            ("AAEC", "AAED"),
            ("--one--", "--one\r\n\r\nmore\r\n--one--"),
        ] {
            assert!(MAIL.contains(from), "{from}");
            check(MAIL, &MAIL.replace(from, to), true, false);
        }
        check(MAIL, &MAIL.replace("One@", "one@"), false, true);
    }

    #[test]
    fn case_043_mails_without_an_id_are_told_apart_by_their_content() {
        for without in ["", "Message-ID:\r\n", "Message-ID:   \r\n", "Message-ID: <>\r\n"] {
            let mail = MAIL.replace("Message-ID:\r\n <One@a.test>\r\n", without);
            let hop = format!("Received: from b by c\r\n{mail}");
            check(&mail, &hop, true, true);
            check(&mail, &mail.replace("A long", "Another"), false, false);
            check(&mail, MAIL, false, true);
            let other = Mail::parse(mail.as_bytes()).found(&["sales@b.test"]);
            assert_ne!(other.key, found(&mail).key);
            assert!(found(&mail).key[0].starts_with("content="));
        }
        assert!(found("").key.is_empty());
    }

    #[test]
    fn case_040_a_mailbox_is_part_of_the_key() {
        let key = |mailboxes: &[&str]| Mail::parse(MAIL.as_bytes()).found(mailboxes).key;
        assert_ne!(key(&["a@b.test"]), key(&["c@b.test"]));
        assert_ne!(key(&["a@b.test"]), key(&["a@b.test", "c@b.test"]));
        assert_eq!(key(&["A@b.test ", "c@b.test"]), key(&["c@B.test", "a@b.test", "c@b.test"]));
    }
}
