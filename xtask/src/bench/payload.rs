//! The events of a load: numbered, of one size, and known byte for byte by their number.

use anyhow::{Result, bail};

/// The type of every event of a load.
pub const EVENT_TYPE: &str = "bench.event";
/// The least size of a payload: what the number and its frame take.
const SIZE_MIN: usize = 64;
/// The number is written with this many digits, so that all payloads have one length.
const DIGITS: usize = 12;
/// Not only letters: escapes and characters of several bytes must arrive as they were sent.
const PATTERN: &str = "abcdefghijklmnopqrstuvwxyz \\u00e9 \\n é 0123456789 ";

/// Makes payloads and whole request bodies of one size.
#[derive(Clone, Debug)]
pub struct Payloads {
    filler: String,
}

impl Payloads {
    /// Payloads of exactly `size` bytes.
    ///
    /// # Errors
    /// The size is too small for the frame.
    pub fn new(size: usize) -> Result<Self> {
        if size < SIZE_MIN {
            bail!("a payload has at least {SIZE_MIN} bytes, not {size}");
        }
        let room = size - frame(0, "").len();
        let mut filler = PATTERN.repeat(room / PATTERN.len());
        filler.push_str(&"x".repeat(room - filler.len()));
        Ok(Self { filler })
    }

    /// The `data` of event number `n`.
    pub fn data(&self, n: u64) -> String {
        frame(n, &self.filler)
    }

    /// The body that publishes event number `n`.
    pub fn body(&self, n: u64) -> String {
        format!("{{\"type\":\"{EVENT_TYPE}\",\"data\":{}}}", self.data(n))
    }
}

impl Payloads {
    /// The body that posts message number `n`.
    pub fn message(&self, n: u64) -> String {
        format!("{{\"body\":\"{n:0DIGITS$} {}\"}}", self.filler)
    }

    /// The body of webhook number `n`.
    pub fn webhook(&self, n: u64) -> String {
        let id = webhook_id(n);
        format!("{{\"id\":\"{id}\",\"type\":\"{EVENT_TYPE}\",\"data\":{}}}", self.data(n))
    }
}

/// The provider's id of webhook number `n`.
pub fn webhook_id(n: u64) -> String {
    format!("evt_{n:0DIGITS$}")
}

fn frame(n: u64, filler: &str) -> String {
    format!("{{\"n\":\"{n:0DIGITS$}\",\"text\":\"{filler}\"}}")
}

/// The number of the event whose envelope this is, if it ends with that event's data unchanged.
pub fn number_of(envelope: &[u8], payloads: &Payloads) -> Option<u64> {
    let text = std::str::from_utf8(envelope).ok()?;
    let begin = text.find("\"data\":{\"n\":\"")? + "\"data\":{\"n\":\"".len();
    let n = text.get(begin..begin + DIGITS)?.parse().ok()?;
    text.ends_with(&format!("\"data\":{}}}", payloads.data(n))).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_have_one_size_and_are_json() {
        for size in [64, 65, 1024, 5000] {
            let payloads = Payloads::new(size).unwrap();
            for n in [0, 7, 999_999_999_999] {
                assert_eq!(payloads.data(n).len(), size);
                for body in [payloads.body(n), payloads.message(n)] {
                    serde_json::from_str::<serde_json::Value>(&body).unwrap();
                }
            }
        }
        assert!(Payloads::new(10).is_err());
    }

    #[test]
    fn a_changed_byte_is_noticed() {
        let payloads = Payloads::new(1024).unwrap();
        let envelope = format!("{{\"id\":\"evt_1\",\"data\":{}}}", payloads.data(42));
        assert_eq!(number_of(envelope.as_bytes(), &payloads), Some(42));
        let changed = envelope.replacen("\\u00e9", "\\u00E9", 1);
        assert_eq!(number_of(changed.as_bytes(), &payloads), None);
    }
}
