//! Before publishing or receiving: where each event goes, and where the engine has room to send it
//! at once.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::delivery::IllegalStep;
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::{self, EventType, NewEvent, Origin};
use everhook_domain::id::EndpointId;
use everhook_domain::key::{KeyHash, KeySpace};
use everhook_domain::source::SourceName;
use everhook_domain::subscription::Facts;
use everhook_domain::tenant::TenantId;
use tokio::time::Sleep;

use crate::directory::Directory;
use crate::error::Refusal;
use crate::handoff::{Handoff, Offer, Permit};
use crate::receiving::{NewReceipt, Receive};
use crate::sending::{Publish, Targets};

/// How long publishing waits in all for room in healthy lanes, before it leaves deliveries in the
/// table.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Where one event goes, and the room that the engine has for it there.
pub(crate) type Route = Vec<(Arc<Endpoint>, Option<Permit>)>;

/// A call that brings events.
pub(crate) trait Brings {
    /// Where each of them goes by this directory.
    fn targets(&self, directory: &Directory) -> Result<Vec<Vec<Arc<Endpoint>>>, Refusal>;

    /// How many bytes are sent for each of them.
    fn sizes(&self) -> impl Iterator<Item = usize> + Send;
}

impl Brings for Publish {
    fn targets(&self, directory: &Directory) -> Result<Vec<Vec<Arc<Endpoint>>>, Refusal> {
        let targets = |event: &NewEvent| match self.targets {
            Targets::Subscribed => {
                let data = event.envelope.data();
                let facts = Facts::new(event.origin, event.event_type.as_str(), None, data);
                Ok(directory.route(&self.tenant, &facts).cloned().collect())
            }
            Targets::Test(endpoint) => {
                let endpoint = directory.endpoint_of(&self.tenant, endpoint);
                let endpoint = endpoint.ok_or(Refusal::NotFound)?;
                match endpoint.state.gone() {
                    Some(reason) => Err(IllegalStep::EndpointGone(reason).into()),
                    None => Ok(vec![Arc::clone(endpoint)]),
                }
            }
        };
        self.events.iter().map(targets).collect()
    }

    fn sizes(&self) -> impl Iterator<Item = usize> + Send {
        self.events.iter().map(|event| event.envelope.len())
    }
}

impl Brings for Receive {
    fn targets(&self, directory: &Directory) -> Result<Vec<Vec<Arc<Endpoint>>>, Refusal> {
        let source = directory.source_of(&self.tenant, self.source).ok_or(Refusal::NotFound)?;
        let name = Some(&source.settings.name);
        let targets = |item: &NewReceipt| {
            if item.unreadable.is_some() {
                return Vec::new();
            }
            let facts = stored_facts(Origin::Received, &item.event_type, name, &item.body);
            directory.route(&self.tenant, &facts).cloned().collect()
        };
        Ok(self.items.iter().map(targets).collect())
    }

    fn sizes(&self) -> impl Iterator<Item = usize> + Send {
        self.items.iter().map(|item| item.body.len())
    }
}

/// What subscriptions ask of an event, from what is stored of it: `source` is the name of the
/// source that it was received from.
pub(crate) fn stored_facts<'a>(
    origin: Origin,
    event_type: &'a EventType,
    source: Option<&'a SourceName>,
    body: &'a [u8],
) -> Facts<'a> {
    let data = match origin {
        Origin::Received => body,
        Origin::Published | Origin::System => {
            event::data_of_stored(event_type, body).unwrap_or_default()
        }
    };
    Facts::new(origin, event_type.as_str(), source.map(SourceName::as_str), data)
}

/// The key of a source event ID.
pub(crate) fn source_key(tenant: &TenantId, event: &NewEvent) -> Option<KeyHash> {
    let id = event.source_event_id.as_ref()?;
    Some(KeyHash::new(KeySpace::SourceEventId, tenant, &[], id.as_str().as_bytes()))
}

/// One route an event, with the permits that were to be had.
///
/// # Errors
/// The target of a test takes nothing. The writer has the last word, because an idempotency key
/// comes first.
pub(crate) async fn routes(
    handoff: &dyn Handoff,
    directory: &Directory,
    call: &impl Brings,
) -> Result<Vec<Route>, Refusal> {
    let targets = call.targets(directory)?;
    let mut patience = std::pin::pin!(tokio::time::sleep(ROOM_WAIT));
    let mut held = HashSet::new();
    let several = targets.len() > 1;
    let mut routes = Vec::with_capacity(targets.len());
    for (targets, bytes) in targets.into_iter().zip(call.sizes()) {
        let mut to = Vec::with_capacity(targets.len());
        for endpoint in targets {
            // Waiting for a lane while holding room in it would be waiting for ourselves.
            let permit = if held.contains(&endpoint.id) {
                taken(handoff.offer(endpoint.id, bytes))
            } else {
                room(handoff, endpoint.id, bytes, &mut patience).await
            };
            if permit.is_some() && several {
                held.insert(endpoint.id);
            }
            to.push((endpoint, permit));
        }
        routes.push(to);
    }
    Ok(routes)
}

/// Room in one lane, waited for while patience lasts: the engine is behind, so wait with it.
async fn room(
    handoff: &dyn Handoff,
    endpoint: EndpointId,
    bytes: usize,
    patience: &mut Pin<&mut Sleep>,
) -> Option<Permit> {
    loop {
        let offer = handoff.offer(endpoint, bytes);
        if !matches!(offer, Offer::Full) || patience.is_elapsed() {
            return taken(offer);
        }
        tokio::select! {
            biased;
            () = handoff.room(endpoint) => {}
            () = patience.as_mut() => return None,
        }
    }
}

fn taken(offer: Offer) -> Option<Permit> {
    match offer {
        Offer::Room(permit) => Some(permit),
        Offer::Full | Offer::Declined => None,
    }
}
