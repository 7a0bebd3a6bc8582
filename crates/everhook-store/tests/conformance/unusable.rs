//! Stored settings that this version cannot use: they hurt their own endpoint and no other.

use std::sync::Arc;
use std::time::Duration;

use everhook_domain::endpoint::{Endpoint, EndpointState, EndpointVerb, Part};
use everhook_domain::id::EndpointId;
use everhook_domain::secret::Secret;
use everhook_store::Change;

use crate::backend::Kind;
use crate::sketch::{events, secrets, settings};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(case_068_a_broken_row_is_an_endpoint_that_works_no_more),
        case(what_is_broken_survives_other_changes),
        case(an_unreadable_subscription_makes_no_deliveries),
    ]
}

/// As an older version would have stored it: a line feed in a header.
const LINE_FEED: &str = r#"{"url":"https://example.org/it's",
    "headers":{"x-a":"b\nx-b: c"},"subscription":{"event_types":["*"]}}"#;

fn endpoint(world: &World, id: EndpointId) -> Arc<Endpoint> {
    Arc::clone(world.store.directory().unwrap().endpoint(id).unwrap())
}

fn unusable(world: &World, id: EndpointId) -> Vec<Part> {
    endpoint(world, id).unusable().map(|(part, _)| part).collect()
}

fn case_068_a_broken_row_is_an_endpoint_that_works_no_more(kind: Kind) {
    let mut world = World::new(kind);
    let (good, broken) = (world.endpoint(), world.endpoint());
    world.store_as(broken, "settings", LINE_FEED);
    assert_eq!((unusable(&world, good), unusable(&world, broken)), (vec![], vec![Part::Headers]));
    assert!(endpoint(&world, broken).obstacle().unwrap().contains("x-a"));
    // Its deliveries are made as its subscription says.
    assert_eq!(world.publish(events(2)).iter().map(|event| event.deliveries).sum::<u32>(), 4);
    world.store_as(broken, "secrets", "[]");
    assert_eq!(unusable(&world, broken), [Part::Headers, Part::Secret]);
    world.store_as(broken, "settings", "not even JSON");
    world.change_state(broken, EndpointVerb::Delete);
    world.crash();
    assert_eq!(endpoint(&world, broken).state, EndpointState::Deleted);
    assert_eq!(unusable(&world, good), []);
}

fn what_is_broken_survives_other_changes(kind: Kind) {
    let mut world = World::new(kind);
    let id = world.endpoint();
    world.store_as(id, "settings", LINE_FEED);
    world.store_as(id, "secrets", "[]");
    world.change_state(id, EndpointVerb::Pause);
    let update = |world: &World, repair: bool| {
        let current = endpoint(world, id);
        let mut changed = current.settings.clone();
        changed.description = "new".into();
        if repair {
            changed.headers = settings(&["*"]).headers;
            changed.unusable.repaired(Part::Headers);
        }
        world.change(Change::UpdateEndpoint {
            tenant: current.tenant.clone(),
            endpoint: id,
            expected_version: current.version,
            settings: Box::new(changed),
        })
    };
    update(&world, false).unwrap();
    world.crash();
    assert_eq!(endpoint(&world, id).settings.description, "new");
    assert_eq!(unusable(&world, id), [Part::Headers, Part::Secret]);
    update(&world, true).unwrap();
    let (tenant, secret) = (world.tenant.clone(), Secret::from_bytes([5; 32]));
    let overlap = Duration::from_secs(3_600);
    let rotate = Change::RotateSecret { tenant, endpoint: id, secret, overlap };
    world.change(rotate).unwrap();
    world.crash();
    assert_eq!((unusable(&world, id), endpoint(&world, id).obstacle()), (vec![], None));
    assert_eq!(endpoint(&world, id).secrets, secrets(5));
}

fn an_unreadable_subscription_makes_no_deliveries(kind: Kind) {
    let mut world = World::new(kind);
    let (good, broken) = (world.endpoint(), world.endpoint());
    for subscription in [r#"{"event_types":["*"],"conditions":5}"#, r#"{"event_types":5}"#, "5"] {
        let stored = format!(r#"{{"url":"http://a/","subscription":{subscription}}}"#);
        world.store_as(broken, "settings", &stored);
        assert!(!unusable(&world, broken).is_empty(), "{subscription}");
        assert_eq!(world.publish(events(1))[0].deliveries, 1, "{subscription}");
    }
    assert_eq!(unusable(&world, good), []);
}
