//! What owners do with endpoints: create, pause, disable, delete, change, rotate.

use std::time::Duration;

use everhook_domain::endpoint::{
    Endpoint, EndpointSettings, EndpointState, EndpointVerb, IllegalVerb,
};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::header::CustomHeaders;
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::{Subscription, SubscriptionInput};
use everhook_domain::time::Timestamp;
use everhook_store::{Change, Changed, Claimed, DirectoryStore, Refusal};

use crate::book::Secrets;
use crate::client::{Client, Told, ask, claim, tenant};
use crate::network::url_of;
use crate::provider::name_of;
use crate::world::World;

/// How long a replaced secret signs on.
const OVERLAP: Duration = Duration::from_secs(24 * 3_600);
/// More tries than any sweep takes.
const TRIES_MAX: u32 = 1_000;

/// Creates the endpoint of a receiver.
pub(crate) async fn create(client: &mut Client, receiver: usize) {
    let first = secret(client);
    let secrets = SecretSet::new(first.clone());
    client.world.book().endpoints[receiver].secrets = Some(vec![(first, None)]);
    loop {
        let process = client.process().await;
        let world = &client.world;
        let settings = match settings(world, receiver, 1) {
            Ok(settings) => Box::new(settings),
            Err(why) => return world.violate(why),
        };
        let change =
            Change::CreateEndpoint { tenant: tenant(), settings, secrets: secrets.clone() };
        let key = claim(&format!("create-{receiver}"), "create", |_: &Changed| String::new());
        let now = process.now();
        match ask(&process, process.front.change(change, Some(key), now)).await {
            Told::Done(Claimed::Done(_) | Claimed::Replayed(_)) => {
                world.look_at_endpoints();
                world.book().endpoints[receiver].told_version = 1;
                if world.book().endpoints[receiver].id.is_none() {
                    world.violate(format!("endpoint {receiver} was created, and is not there"));
                }
                return;
            }
            Told::Done(Claimed::Mismatch | Claimed::OverQuota) | Told::Refused(_) => {
                return world.violate(format!("endpoint {receiver} could not be created"));
            }
            Told::Lost | Told::Unavailable => {}
        }
        client.rest().await;
    }
}

/// Pauses, and resumes later.
pub(crate) async fn pause(client: &mut Client, receiver: usize, for_ms: i64) {
    act(client, receiver, EndpointVerb::Pause).await;
    wait(for_ms).await;
    act(client, receiver, EndpointVerb::Resume).await;
}

/// Disables, and enables later; for no time at all means for good.
pub(crate) async fn disable(client: &mut Client, receiver: usize, for_ms: i64) {
    act(client, receiver, EndpointVerb::Disable).await;
    if for_ms > 0 {
        wait(for_ms).await;
        act(client, receiver, EndpointVerb::Enable).await;
    }
}

/// Deletes.
pub(crate) async fn delete(client: &mut Client, receiver: usize) {
    act(client, receiver, EndpointVerb::Delete).await;
}

/// Changes a state; gives up if the endpoint's own forbids it.
pub(crate) async fn act(client: &mut Client, receiver: usize, verb: EndpointVerb) {
    for _ in 0..TRIES_MAX {
        let process = client.process().await;
        let world = &client.world;
        let Some(endpoint) = world.book().endpoints[receiver].id else { return };
        let change = Change::ActOnEndpoint { tenant: tenant(), endpoint, verb };
        let now = process.now();
        let told = ask(&process, process.front.change(change, None, now)).await;
        match told {
            Told::Done(Claimed::Done(Changed::Endpoint(changed))) => {
                let state = EndpointState::Enabled.after(verb).ok();
                return note_told(world, receiver, &changed, state);
            }
            Told::Refused(Refusal::Endpoint(IllegalVerb::Deleted)) => return,
            Told::Refused(Refusal::Endpoint(IllegalVerb::Disabled))
                if matches!(verb, EndpointVerb::Pause | EndpointVerb::Resume) =>
            {
                return;
            }
            Told::Refused(Refusal::StillCancelling) | Told::Lost | Told::Unavailable => {}
            Told::Done(_) | Told::Refused(_) => {
                return world.violate(format!("endpoint {receiver}: {verb:?} was refused"));
            }
        }
        client.rest().await;
    }
    client.world.violate(format!("endpoint {receiver} is being cancelled for ever"));
}

/// Changes an endpoint: its secret, or its URL, headers and limits.
pub(crate) async fn update(client: &mut Client, receiver: usize, rotate: bool) {
    let new_secret = secret(client);
    for _ in 0..TRIES_MAX {
        let process = client.process().await;
        let world = &client.world;
        let Some(id) = world.book().endpoints[receiver].id else { return };
        let directory = world.store().and_then(|store| store.directory().ok());
        let Some(old) = directory.and_then(|found| found.endpoint(id).cloned()) else { return };
        let now = process.now();
        let change = match change_of(world, receiver, &old, rotate.then_some(&new_secret)) {
            Ok(change) => change,
            Err(why) => return world.violate(why),
        };
        let known = rotate.then(|| world.book().endpoints[receiver].begin_rotation());
        match ask(&process, process.front.change(change, None, now)).await {
            Told::Done(Claimed::Done(Changed::Endpoint(changed))) => {
                if let Some((number, known)) = known {
                    let known = known.map(|known| rotated(known, new_secret, now));
                    world.book().endpoints[receiver].end_rotation(number, known);
                }
                return note_told(world, receiver, &changed, None);
            }
            Told::Refused(Refusal::Endpoint(IllegalVerb::Deleted)) => return,
            Told::Refused(Refusal::Secrets(_)) => {
                if let Some((number, known)) = known {
                    world.book().endpoints[receiver].end_rotation(number, known);
                }
                return;
            }
            Told::Refused(Refusal::VersionChanged) | Told::Unavailable => {
                if let Some((number, known)) = known {
                    world.book().endpoints[receiver].end_rotation(number, known);
                }
            }
            Told::Lost => {}
            Told::Done(_) | Told::Refused(_) => {
                return world.violate(format!("endpoint {receiver} could not be changed"));
            }
        }
        client.rest().await;
    }
}

/// A rotation to this secret, or else new settings.
fn change_of(
    world: &World,
    receiver: usize,
    old: &Endpoint,
    secret: Option<&Secret>,
) -> Result<Change, String> {
    let (tenant, endpoint) = (tenant(), old.id);
    Ok(match secret {
        Some(secret) => {
            Change::RotateSecret { tenant, endpoint, secret: secret.clone(), overlap: OVERLAP }
        }
        None => Change::UpdateEndpoint {
            tenant,
            endpoint,
            expected_version: old.version,
            settings: Box::new(settings(world, receiver, old.version + 1)?),
        },
    })
}

/// The secrets after a rotation: the one that was newest signs on for a while.
fn rotated(mut known: Secrets, new: Secret, now: Timestamp) -> Secrets {
    if let Some((_, until)) = known.first_mut() {
        *until = Some(now + OVERLAP);
    }
    known.insert(0, (new, None));
    known
}

fn note_told(world: &World, receiver: usize, told: &Endpoint, state: Option<EndpointState>) {
    let version = told.version;
    world.note(format_args!("endpoint {receiver}: version {version}"));
    let mut book = world.book();
    let known = &mut book.endpoints[receiver];
    known.told_version = known.told_version.max(version);
    drop(book);
    if state.is_some_and(|state| state != told.state) {
        world.violate(format!("endpoint {receiver} should be {state:?}, told {:?}", told.state));
    }
    world.look_at_endpoints();
}

async fn wait(for_ms: i64) {
    tokio::time::sleep(Duration::from_millis(u64::try_from(for_ms).unwrap_or(0))).await;
}

fn secret(client: &mut Client) -> Secret {
    let mut bytes = [0; 32];
    for byte in &mut bytes {
        *byte = client.rng.next().to_le_bytes()[0];
    }
    Secret::from_bytes(bytes)
}

/// The settings of a receiver's endpoint; every revision has another URL and another header.
fn settings(world: &World, receiver: usize, revision: u64) -> Result<EndpointSettings, String> {
    let place = &world.profile.receivers[receiver];
    let sources = &world.profile.inbox.subscriptions[receiver];
    let url = EndpointUrl::parse(&url_of(receiver, revision), false);
    let pairs = [("x-revision".to_owned(), revision.to_string())];
    let headers = CustomHeaders::parse(pairs, &world.profile.settings.header_prefix);
    let subscription = Subscription::parse(SubscriptionInput {
        event_types: vec![place.wants.to_owned()],
        sources: sources.iter().map(|source| name_of(*source)).collect(),
        conditions: Vec::new(),
    });
    Ok(EndpointSettings {
        url: url.map_err(|error| error.to_string())?,
        description: format!("{:?}", place.manner),
        headers: headers.map_err(|errors| format!("{errors:?}"))?,
        subscription: subscription.map_err(|errors| format!("{errors:?}"))?,
        requests_per_second: place.per_second,
        max_in_flight: place.in_flight,
        ca_certificates: None,
        unusable: Default::default(),
    })
}
