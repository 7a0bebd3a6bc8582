//! Before publishing: where each event goes, and where the engine has room to send it at once.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::delivery::IllegalStep;
use everhook_domain::endpoint::Endpoint;
use everhook_domain::event::NewEvent;
use everhook_domain::id::EndpointId;
use everhook_domain::key::{KeyHash, KeySpace};
use everhook_domain::subscription::Facts;
use everhook_domain::tenant::TenantId;
use tokio::time::Sleep;

use crate::directory::Directory;
use crate::error::Refusal;
use crate::handoff::{Handoff, Offer, Permit};
use crate::sending::{Publish, Targets};

/// How long publishing waits in all for room in healthy lanes, before it leaves deliveries in the
/// table.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Where one event goes, and the room that the engine has for it there.
pub(crate) type Route = Vec<(Arc<Endpoint>, Option<Permit>)>;

/// Where an event goes by this directory.
pub(crate) fn route(
    directory: &Directory,
    tenant: &TenantId,
    targets: Targets,
    event: &NewEvent,
) -> Result<Vec<Arc<Endpoint>>, Refusal> {
    match targets {
        Targets::Subscribed => {
            let data = event.envelope.data();
            let facts = Facts::new(event.origin, event.event_type.as_str(), None, data);
            Ok(directory.route(tenant, &facts).cloned().collect())
        }
        Targets::Test(endpoint) => {
            let endpoint = directory.endpoint_of(tenant, endpoint).ok_or(Refusal::NotFound)?;
            match endpoint.state.gone() {
                Some(reason) => Err(IllegalStep::EndpointGone(reason).into()),
                None => Ok(vec![Arc::clone(endpoint)]),
            }
        }
    }
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
    publish: &Publish,
) -> Result<Vec<Route>, Refusal> {
    let mut patience = std::pin::pin!(tokio::time::sleep(ROOM_WAIT));
    let mut held = HashSet::new();
    let mut routes = Vec::with_capacity(publish.events.len());
    for event in &publish.events {
        let targets = route(directory, &publish.tenant, publish.targets, event)?;
        let mut to = Vec::with_capacity(targets.len());
        for endpoint in targets {
            let bytes = event.envelope.len();
            // Waiting for a lane while holding room in it would be waiting for ourselves.
            let permit = if held.contains(&endpoint.id) {
                taken(handoff.offer(endpoint.id, bytes))
            } else {
                room(handoff, endpoint.id, bytes, &mut patience).await
            };
            if permit.is_some() && publish.events.len() > 1 {
                held.insert(endpoint.id);
            }
            to.push((Arc::clone(&endpoint), permit));
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
