//! Nothing reaches across tenants, whatever the verb.

use everhook_domain::delivery::{Due, State};
use everhook_domain::endpoint::EndpointVerb::Pause;
use everhook_domain::id::{EndpointId, EventId};
use everhook_domain::tenant::TenantId;
use everhook_store::{
    Act, Change, DeliveryQuery, EventQuery, PageRequest, Publish, Refusal, StatusFilter,
    StoreError, Targets,
};

use crate::backend::Kind;
use crate::sketch::{claim, event, events, publish_in, secret, secs, settings, tenant};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(events_go_to_the_tenants_own_endpoints),
        case(lists_show_the_tenants_own),
        case(single_things_are_the_tenants_own),
        case(verbs_reach_the_tenants_own),
        case(changes_reach_the_tenants_own),
        case(an_unknown_tenant_has_nothing),
    ]
}

const PAGE: PageRequest = PageRequest { limit: 10, after: None, scan_limit: 1_000 };

/// Two tenants, each with an endpoint and an event in flight; the second one is the stranger.
struct Neighbours {
    world: World,
    stranger: TenantId,
    /// The default tenant's.
    event: EventId,
    endpoint: EndpointId,
}

fn neighbours(kind: Kind) -> Neighbours {
    let world = World::new(kind);
    let stranger = world.add_tenant("stranger");
    let endpoint = world.endpoint();
    world.endpoint_for(&stranger, &["*"]);
    let event = world.publish(events(2))[1].id;
    world.try_publish(publish_in(&stranger, events(3))).unwrap();
    Neighbours { world, stranger, event, endpoint }
}

fn not_found<T>() -> Result<T, StoreError> {
    Err(StoreError::Refused(Refusal::NotFound))
}

fn events_go_to_the_tenants_own_endpoints(kind: Kind) {
    let Neighbours { world, stranger, endpoint, .. } = neighbours(kind);
    let own = world.deliveries_of(&world.tenant, DeliveryQuery::default());
    assert_eq!(own.len(), 2);
    assert!(own.iter().all(|delivery| delivery.endpoint == endpoint));
    let theirs = world.deliveries_of(&stranger, DeliveryQuery::default());
    assert_eq!(theirs.len(), 3);
    assert!(theirs.iter().all(|delivery| delivery.endpoint != endpoint));
}

fn lists_show_the_tenants_own(kind: Kind) {
    let Neighbours { world, stranger, event, endpoint } = neighbours(kind);
    for status in [StatusFilter::Due, StatusFilter::Leased, StatusFilter::Cancelled] {
        match status {
            StatusFilter::Leased => drop(world.claim_all(endpoint)),
            StatusFilter::Cancelled => world.deliveries().iter().for_each(|delivery| {
                world.act(delivery.id, Act::Cancel).unwrap();
            }),
            StatusFilter::Due | StatusFilter::Delivered | StatusFilter::Dead => {}
        }
        for query in [
            DeliveryQuery { event: Some(event), ..DeliveryQuery::default() },
            DeliveryQuery { endpoint: Some(endpoint), ..DeliveryQuery::default() },
            DeliveryQuery {
                status: Some(status),
                endpoint: Some(endpoint),
                ..DeliveryQuery::default()
            },
        ] {
            assert_eq!(world.deliveries_of(&stranger, query), []);
        }
    }
    let list = world.store.events(stranger.clone(), EventQuery::default(), PAGE);
    assert_eq!(world.wait(list).unwrap().items.len(), 3);
    assert_eq!(world.events().len(), 2);
}

fn single_things_are_the_tenants_own(kind: Kind) {
    let Neighbours { world, stranger, event, .. } = neighbours(kind);
    assert!(world.wait(world.store.event(stranger.clone(), event)).unwrap().is_none());
    let delivery = world.store.delivery(stranger, event.delivery(1));
    assert_eq!(world.wait(delivery), Ok(None));
    assert!(world.wait(world.store.event(world.tenant.clone(), event)).unwrap().is_some());
}

fn verbs_reach_the_tenants_own(kind: Kind) {
    let Neighbours { world, stranger, event, endpoint } = neighbours(kind);
    let (store, now) = (&world.store, world.now);
    let before = world.deliveries();
    for act in [Act::Replay, Act::Cancel, Act::Acknowledge] {
        let verb = store.act(stranger.clone(), event.delivery(1), act, None, now);
        assert_eq!(world.wait(verb), not_found());
        let claim = Some(claim("k", "1"));
        let verb = store.act(stranger.clone(), event.delivery(1), act, claim, now);
        assert_eq!(world.wait(verb), not_found());
    }
    let theirs = world.deliveries_of(&stranger, DeliveryQuery::default())[0].id.event();
    for (event, endpoint) in [(event, None), (event, Some(endpoint)), (theirs, Some(endpoint))] {
        let verb = store.send_again(stranger.clone(), event, endpoint, None, now);
        assert_eq!(world.wait(verb), not_found());
    }
    let test = Publish {
        tenant: stranger.clone(),
        events: vec![self::event("everhook.test", "{}")],
        targets: Targets::Test(endpoint),
    };
    assert_eq!(world.wait(store.publish(test, None, now)), not_found());
    assert_eq!(world.deliveries(), before);
    assert!(before.iter().all(|d| matches!(d.state, State::Due(Due { at, .. }) if at == now)));
}

fn changes_reach_the_tenants_own(kind: Kind) {
    let Neighbours { world, stranger, endpoint, .. } = neighbours(kind);
    let directory = world.store.directory().unwrap();
    assert!(directory.endpoint_of(&stranger, endpoint).is_none());
    assert!(directory.endpoints_of(&stranger).iter().all(|found| found.id != endpoint));
    let state = Change::ActOnEndpoint { tenant: stranger.clone(), endpoint, verb: Pause };
    let update = Change::UpdateEndpoint {
        tenant: stranger.clone(),
        endpoint,
        expected_version: 1,
        settings: settings(&["*"]),
    };
    let rotation = Change::RotateSecret {
        tenant: stranger.clone(),
        endpoint,
        secret: secret(2),
        overlap: secs(60),
    };
    for change in [state, update, rotation] {
        assert_eq!(world.change(change).map(drop), not_found());
    }
    let after = world.store.directory().unwrap();
    assert_eq!(after.endpoint(endpoint).unwrap().version, 1);
}

fn an_unknown_tenant_has_nothing(kind: Kind) {
    let Neighbours { world, event, .. } = neighbours(kind);
    let nobody = tenant("nobody");
    let (store, now) = (&world.store, world.now);
    let query = DeliveryQuery::default();
    assert_eq!(world.wait(store.deliveries(nobody.clone(), query, PAGE)), not_found());
    let query = EventQuery::default();
    assert_eq!(world.wait(store.events(nobody.clone(), query, PAGE)), not_found());
    assert_eq!(world.wait(store.event(nobody.clone(), event)).map(drop), not_found());
    let delivery = store.delivery(nobody.clone(), event.delivery(1));
    assert_eq!(world.wait(delivery), not_found());
    let act = store.act(nobody.clone(), event.delivery(1), Act::Cancel, None, now);
    assert_eq!(world.wait(act), not_found());
    assert_eq!(world.wait(store.send_again(nobody, event, None, None, now)), not_found());
}
