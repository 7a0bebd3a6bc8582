//! Whether a throughput row may be believed.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

/// What the server says is stored of one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: String,
    /// The number of its attempts.
    pub attempts: u64,
}

/// Everything that is known after a load, from three sides that do not know each other.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The ids that the generator got a 202 for.
    pub accepted: Vec<String>,
    /// How often each id came to the receiver.
    pub arrived: HashMap<String, u64>,
    /// The deliveries of each event, as the API lists them.
    pub stored: HashMap<String, Vec<Stored>>,
    /// Sampled requests whose signature and bytes were checked, and those that were wrong.
    pub sampled: u64,
    /// See `sampled`.
    pub wrong: u64,
    /// Sampled deliveries whose attempts were read one by one, and those that were not one success.
    pub read: u64,
    /// See `read`.
    pub misread: u64,
    /// Requests of the generator that got no answer.
    pub errors: u64,
}

/// The counts behind the verdict, and the reasons why the row is void; none means that it holds.
pub fn judge(evidence: &Evidence) -> (Value, Vec<String>) {
    let missing = evidence.accepted.iter().filter(|id| !evidence.arrived.contains_key(*id)).count();
    let twice: u64 = evidence.arrived.values().map(|times| times - 1).sum();
    let mut known = evidence.arrived.clone();
    evidence.accepted.iter().for_each(|id| {
        known.remove(id);
    });
    let unknown = known.len();
    let unstored = evidence.accepted.iter().filter(|id| !stored_once(evidence, id)).count();
    let surplus = evidence.stored.len().saturating_sub(evidence.accepted.len() - unstored);
    let counts = json!({
        "accepted": evidence.accepted.len(),
        "missing_at_receiver": missing,
        "arrived_again": twice,
        "arrived_but_never_accepted": unknown,
        "not_stored_as_one_success": unstored,
        "stored_but_never_accepted": surplus,
        "requests_checked": evidence.sampled,
        "requests_wrong": evidence.wrong,
        "attempts_read": evidence.read,
        "attempts_wrong": evidence.misread,
        "publishes_without_answer": evidence.errors,
    });
    let faults = [
        (evidence.accepted.is_empty(), "nothing was accepted".to_owned()),
        (missing > 0, format!("{missing} accepted events did not arrive")),
        (unknown > 0, format!("{unknown} events arrived that were never accepted")),
        (unstored > 0, format!("{unstored} events are not stored as one delivery, one attempt")),
        (surplus > 0, format!("{surplus} stored events were never accepted")),
        (evidence.sampled == 0, "no signature was checked".to_owned()),
        (evidence.wrong > 0, format!("{} sampled requests are wrong", evidence.wrong)),
        (evidence.read == 0, "no attempt was read".to_owned()),
        (evidence.misread > 0, format!("{} sampled attempts are wrong", evidence.misread)),
        (evidence.errors > 0, format!("{} publishes got no answer", evidence.errors)),
    ];
    (counts, faults.into_iter().filter(|(is, _)| *is).map(|(_, fault)| fault).collect())
}

fn stored_once(evidence: &Evidence, event: &str) -> bool {
    let deliveries = evidence.stored.get(event).map_or(&[][..], Vec::as_slice);
    matches!(deliveries, [one] if one.status == "delivered" && one.attempts == 1)
}

/// Whether a delivery, read in full, holds exactly one attempt with a 200.
pub fn one_success(delivery: &Value) -> bool {
    let attempts = delivery["attempts"].as_array().map_or(&[][..], Vec::as_slice);
    matches!(attempts, [one] if one["status_code"] == 200 && one["number"] == 1)
}

/// Counts how often each id occurs.
pub fn count<'a>(ids: impl Iterator<Item = &'a str>) -> HashMap<String, u64> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    counts.into_iter().map(|(id, count)| (id.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(status: &str, attempts: u64) -> Vec<Stored> {
        vec![Stored { id: "dlv_1".into(), status: status.into(), attempts }]
    }

    fn good() -> Evidence {
        Evidence {
            accepted: vec!["evt_1".into(), "evt_2".into()],
            arrived: count(["evt_1", "evt_2"].into_iter()),
            stored: HashMap::from([
                ("evt_1".into(), stored("delivered", 1)),
                ("evt_2".into(), stored("delivered", 1)),
            ]),
            sampled: 1,
            read: 1,
            ..Evidence::default()
        }
    }

    fn check(change: impl FnOnce(&mut Evidence), reason: &str) {
        let mut evidence = good();
        change(&mut evidence);
        let (_, faults) = judge(&evidence);
        assert!(faults.iter().any(|fault| fault.contains(reason)), "{faults:?}");
    }

    #[test]
    fn a_good_row_holds_even_with_a_duplicate() {
        assert_eq!(judge(&good()).1, Vec::<String>::new());
        let mut again = good();
        again.arrived.insert("evt_1".into(), 2);
        let (counts, faults) = judge(&again);
        assert_eq!((counts["arrived_again"].as_u64(), faults.len()), (Some(1), 0));
    }

    #[test]
    fn each_fault_makes_it_void() {
        check(|evidence| evidence.accepted.clear(), "nothing was accepted");
        check(|evidence| evidence.arrived.retain(|id, _| id != "evt_1"), "did not arrive");
        check(|evidence| evidence.arrived.extend([("evt_9".into(), 1)]), "never accepted");
        check(|evidence| drop(evidence.stored.remove("evt_2")), "not stored");
        let retried = |evidence: &mut Evidence| {
            evidence.stored.insert("evt_2".into(), stored("delivered", 2));
        };
        check(retried, "not stored");
        let leased = |evidence: &mut Evidence| {
            evidence.stored.insert("evt_2".into(), stored("leased", 1));
        };
        check(leased, "not stored");
        let surplus = |evidence: &mut Evidence| {
            evidence.stored.insert("evt_9".into(), stored("delivered", 1));
        };
        check(surplus, "stored events were never accepted");
        check(|evidence| evidence.sampled = 0, "no signature");
        check(|evidence| evidence.wrong = 1, "sampled requests are wrong");
        check(|evidence| evidence.misread = 1, "sampled attempts are wrong");
        check(|evidence| evidence.errors = 1, "got no answer");
    }

    #[test]
    fn one_success_is_one_attempt_with_a_200() {
        let attempt = json!({"number": 1, "status_code": 200});
        assert!(one_success(&json!({"attempts": [attempt]})));
        assert!(!one_success(&json!({"attempts": [attempt, attempt]})));
        assert!(!one_success(&json!({"attempts": [{"number": 1, "status_code": 500}]})));
        assert!(!one_success(&json!({"attempts": []})));
    }
}
