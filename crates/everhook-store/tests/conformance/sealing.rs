//! Secrets at rest under a master key, its rotation, and what is refused.

use std::sync::Arc;

use everhook_domain::endpoint::{Endpoint, EndpointVerb, Part};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::id::EndpointId;
use everhook_store::{Change, MasterKey, Sealer};

use crate::backend::Kind;
use crate::sketch::{secrets, settings};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(everything_secret_is_stored_sealed),
        case(setting_and_replacing_a_key_seals_anew),
        case(a_value_of_another_endpoint_is_not_taken),
        case(many_endpoints_are_sealed_anew_in_steps),
    ]
}

const URL: &str = "http://user:hunter2@example.org/";

/// For stores whose data outlives a refused start.
pub(crate) fn lasting_cases() -> Vec<Case> {
    vec![case(without_the_key_nothing_opens)]
}

pub(crate) fn key(byte: u8) -> MasterKey {
    MasterKey::parse(&format!("{byte:02x}").repeat(32)).unwrap()
}

/// Random enough for a test: every salt is another one.
pub(crate) fn sealer(current: u8, old: &[u8]) -> Sealer {
    let drawn = std::sync::atomic::AtomicU64::new(0);
    let entropy = Arc::new(move |bytes: &mut [u8]| {
        let draw = drawn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        bytes[..8].copy_from_slice(&draw.to_le_bytes());
    });
    Sealer::new(key(current), old.iter().copied().map(key).collect(), entropy)
}

/// An endpoint with a password in its URL.
fn endpoint(world: &World) -> EndpointId {
    let mut settings = settings(&["*"]);
    settings.url = EndpointUrl::parse(URL, false).unwrap();
    let tenant = world.tenant.clone();
    let created = world.change(Change::CreateEndpoint { tenant, settings, secrets: secrets(1) });
    created.unwrap().endpoint().unwrap().id
}

fn read(world: &World, id: EndpointId) -> Arc<Endpoint> {
    Arc::clone(world.store.directory().unwrap().endpoint(id).unwrap())
}

fn is_whole(world: &World, id: EndpointId) -> bool {
    let endpoint = read(world, id);
    let whole = endpoint.settings.url.expose() == URL;
    whole && endpoint.secrets == secrets(1) && endpoint.obstacle().is_none()
}

/// Whether both columns are sealed under this key and show nothing.
#[track_caller]
fn check_sealed(world: &mut World, id: EndpointId, byte: u8) {
    for stored in world.stored(id) {
        assert!(stored.starts_with(&format!("sealed:1:{}:", key(byte).id())), "{stored}");
        assert!(!stored.contains("hunter2") && !stored.contains("whsec_"), "{stored}");
    }
}

fn everything_secret_is_stored_sealed(kind: Kind) {
    let mut world = World::new(kind);
    world.restart_sealed(sealer(1, &[])).unwrap();
    let id = endpoint(&world);
    check_sealed(&mut world, id, 1);
    assert!(is_whole(&world, id));
    world.change_state(id, EndpointVerb::Pause);
    check_sealed(&mut world, id, 1);
    assert!(is_whole(&world, id));
}

fn setting_and_replacing_a_key_seals_anew(kind: Kind) {
    let mut world = World::new(kind);
    let id = endpoint(&world);
    assert!(world.stored(id)[0].contains("hunter2"), "without a key it is stored as it is");
    world.restart_sealed(sealer(1, &[])).unwrap();
    check_sealed(&mut world, id, 1);
    let version = read(&world, id).version;
    world.restart_sealed(sealer(2, &[1])).unwrap();
    check_sealed(&mut world, id, 2);
    // The old one is not needed any more.
    world.restart_sealed(sealer(2, &[])).unwrap();
    assert!(is_whole(&world, id));
    assert_eq!(read(&world, id).version, version, "nothing that its owner sees has changed");
}

fn without_the_key_nothing_opens(kind: Kind) {
    let mut world = World::new(kind);
    world.restart_sealed(sealer(1, &[])).unwrap();
    let id = endpoint(&world);
    for other in [sealer(2, &[]), Sealer::default(), sealer(2, &[3])] {
        let why = world.try_other_keys(other);
        assert!(why.contains(key(1).id()) && why.contains("secrets.master_key_file"), "{why}");
        assert!(!why.contains("0101"), "{why}");
    }
    check_sealed(&mut world, id, 1);
    assert!(is_whole(&world, id));
}

fn a_value_of_another_endpoint_is_not_taken(kind: Kind) {
    let mut world = World::new(kind);
    world.restart_sealed(sealer(1, &[])).unwrap();
    let (one, other) = (endpoint(&world), endpoint(&world));
    let [settings, secrets] = world.stored(one);
    world.store_as(other, "settings", &settings);
    world.store_as(other, "secrets", &secrets);
    assert!(is_whole(&world, one));
    let endpoint = read(&world, other);
    assert!(endpoint.unusable().any(|(part, _)| part == Part::Url));
    assert!(endpoint.unusable().any(|(part, _)| part == Part::Secret));
    // It is left as it is, and nothing else is held up.
    world.restart_sealed(sealer(2, &[1])).unwrap();
    check_sealed(&mut world, one, 2);
    assert_eq!(world.stored(other), [settings, secrets]);
}

fn many_endpoints_are_sealed_anew_in_steps(kind: Kind) {
    let mut world = World::new(kind);
    let id = endpoint(&world);
    world.multiply_endpoint(1_201);
    world.restart_sealed(sealer(1, &[])).unwrap();
    world.restart_sealed(sealer(2, &[1])).unwrap();
    world.restart_sealed(sealer(2, &[])).unwrap();
    let directory = world.store.directory().unwrap();
    assert_eq!(directory.all().count(), 1_201);
    assert!(directory.all().all(|endpoint| is_whole(&world, endpoint.id)));
    check_sealed(&mut world, id, 2);
}
