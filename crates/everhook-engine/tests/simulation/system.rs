//! What Everhook tells of itself: every death, and the beginning and the end of every outage, once.

use std::collections::{BTreeMap, BTreeSet};

use everhook_domain::delivery::State;
use everhook_domain::event::{Nature, Origin};
use everhook_domain::system_event::{
    DELIVERY_DEAD, ENDPOINT_DISABLED, ENDPOINT_FAILING, ENDPOINT_RECOVERED,
};
use everhook_store::{DeliveryDetail, EventDetail};
use serde_json::Value;

/// Takes the system events from among the others.
pub(crate) fn take(events: &mut Vec<EventDetail>) -> Vec<EventDetail> {
    events.extract_if(.., |event| nature(event) == Nature::System).collect()
}

fn nature(event: &EventDetail) -> Nature {
    Nature::of(event.record.event_type.as_str())
}

/// Looks at all system events, newest first as they are listed.
pub(crate) fn check(events: &[EventDetail], deliveries: &[DeliveryDetail]) -> Result<(), String> {
    let mut deaths: BTreeSet<(String, u64)> = BTreeSet::new();
    let mut failing: BTreeMap<String, bool> = BTreeMap::new();
    for event in events.iter().rev() {
        let (id, event_type) = (event.record.id, event.record.event_type.as_str());
        let body: Value =
            serde_json::from_slice(&event.body).map_err(|why| format!("{id}: {why}"))?;
        let named = |name: &str| body["data"][name].as_str().unwrap_or_default().to_owned();
        let endpoint = named("endpoint_id");
        if event.record.origin != Origin::System || body["id"] != id.to_string() {
            return Err(format!("{id} is not as a system event is"));
        }
        let was = failing.get(&endpoint).copied().unwrap_or_default();
        let fits = match event_type {
            DELIVERY_DEAD => {
                let round = body["data"]["round"].as_u64().unwrap_or_default();
                deaths.insert((named("delivery_id"), round))
            }
            ENDPOINT_FAILING => failing.insert(endpoint, true) != Some(true),
            ENDPOINT_RECOVERED => failing.insert(endpoint, false) == Some(true),
            ENDPOINT_DISABLED => {
                // What fails on is told of again once it is enabled.
                failing.insert(endpoint, false);
                body["data"]["failing_since"].is_string() == was
            }
            _ => false,
        };
        if !fits {
            return Err(format!("{event_type} {id} is told without its time"));
        }
    }
    check_deaths(deaths, deliveries)
}

/// Each death is told of, and nothing that is no death; of tests nothing is told.
fn check_deaths(
    mut deaths: BTreeSet<(String, u64)>,
    deliveries: &[DeliveryDetail],
) -> Result<(), String> {
    for delivery in deliveries {
        let record = &delivery.record;
        let (id, round) = (record.id, u64::from(record.progress.round));
        let is_dead = matches!(record.state, State::Dead(_));
        let is_told = deaths.remove(&(id.to_string(), round));
        let wanted = Nature::of(record.event_type.as_str()) == Nature::Ordinary && is_dead;
        if is_told != wanted {
            return Err(format!("{id} in round {round}: dead {is_dead}, told {is_told}"));
        }
    }
    for (id, round) in deaths {
        // An earlier round, which a replay has left behind.
        let of = |delivery: &&DeliveryDetail| delivery.record.id.to_string() == id;
        let left_behind = deliveries
            .iter()
            .find(of)
            .is_some_and(|delivery| u64::from(delivery.record.progress.round) > round);
        if !left_behind {
            return Err(format!("the death of {id} in round {round} is told of"));
        }
    }
    Ok(())
}
