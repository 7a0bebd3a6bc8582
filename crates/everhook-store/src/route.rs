//! Before publishing: where each event goes, and where the engine has room to send it at once.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::id::EndpointId;
use tokio::time::Sleep;

use super::publish::{Route, route};
use crate::directory::Directory;
use crate::error::Refusal;
use crate::handoff::{Handoff, Offer, Permit};
use crate::sending::Publish;

/// How long publishing waits in all for room in healthy lanes, before it leaves deliveries in the
/// table.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// One route an event, with the permits that were to be had.
///
/// # Errors
/// The target of a test takes nothing. The writer has the last word, because an idempotency key
/// comes first.
pub(super) async fn routes(
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
