//! `directory` and `change`: tenants and endpoints, and what their changes do to deliveries.

use std::sync::Arc;

use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint::EndpointState::{self, Enabled};
use everhook_domain::endpoint::EndpointVerb::{Delete, Disable, Enable, Pause, Resume};
use everhook_domain::endpoint::{Disabled, Endpoint, EndpointSettings, IllegalVerb};
use everhook_domain::header::CustomHeaders;
use everhook_domain::id::EndpointId;
use everhook_domain::secret::TooManySecrets;
use everhook_domain::subscription::{Subscription, SubscriptionInput};
use everhook_domain::tenant::TenantId;
use everhook_domain::time::Timestamp;
use everhook_store::{Change, Changed, Directory, ENDPOINTS_PER_TENANT_MAX, Refusal, StoreError};

use crate::backend::Kind;
use crate::sketch::{TYPE, create_tenant, event, events, secret, secrets, secs, settings, tenant};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(the_default_tenant_is_there),
        case(a_tenant_is_made_once),
        case(an_endpoint_is_as_it_was_made),
        case(an_endpoint_is_changed_from_the_version_that_was_read),
        case(a_secret_is_rotated),
        case(what_does_not_exist_is_not_found),
        case(a_deleted_endpoint_is_history),
        case(a_change_holds_for_the_next_event),
        case(endpoints_are_listed_oldest_first),
        case(a_tenant_has_only_so_many_endpoints),
        case(changes_are_told),
        case(changes_survive_a_crash),
        case(a_race_of_changes_has_one_winner),
    ]
}

pub(crate) fn refused<T>(refusal: Refusal) -> Result<T, StoreError> {
    Err(StoreError::Refused(refusal))
}

fn directory(world: &World) -> Arc<Directory> {
    world.store.directory().unwrap()
}

fn update(endpoint: &Endpoint, settings: Box<EndpointSettings>) -> Change {
    Change::UpdateEndpoint {
        tenant: endpoint.tenant.clone(),
        endpoint: endpoint.id,
        expected_version: endpoint.version,
        settings,
    }
}

pub(crate) fn endpoint(world: &World, id: EndpointId) -> Arc<Endpoint> {
    Arc::clone(directory(world).endpoint(id).unwrap())
}

/// Everything about an endpoint that can be compared.
pub(crate) type Whole = (
    (EndpointId, TenantId, EndpointState, Option<Disabled>, u64, Timestamp, Timestamp),
    (String, String, CustomHeaders, Subscription, Option<u32>, Option<u32>, Option<CaCertificates>),
    String,
);

/// Some certificate.
const AUTHORITY: &str = include_str!("../../../everhook-domain/tests/data/authority.pem");

pub(crate) fn whole(endpoint: &Endpoint) -> Whole {
    let Endpoint {
        id,
        tenant,
        state,
        disabled,
        version,
        created_at,
        updated_at,
        settings,
        secrets,
    } = endpoint.clone();
    (
        (id, tenant, state, disabled, version, created_at, updated_at),
        (
            settings.url.expose().to_owned(),
            settings.description,
            settings.headers,
            settings.subscription,
            settings.requests_per_second,
            settings.max_in_flight,
            settings.ca_certificates,
        ),
        secrets.to_stored(),
    )
}

/// Settings in which nothing has its default value.
fn rich() -> Box<EndpointSettings> {
    let subscription: SubscriptionInput = serde_json::from_str(
        r#"{"event_types": ["a.*", "b"], "sources": ["stripe"],
            "conditions": [{"pointer": "/a/b", "equals": 1.50}]}"#,
    )
    .unwrap();
    let headers = vec![("x-key".to_owned(), "secret; a=\"b\"".to_owned())];
    let prefix = "X-Message-".parse().unwrap();
    Box::new(EndpointSettings {
        description: "für 'Käse'; \u{1f600}".into(),
        headers: CustomHeaders::parse(headers, &prefix).unwrap(),
        subscription: Subscription::parse(subscription).unwrap(),
        requests_per_second: Some(5),
        max_in_flight: Some(2),
        ca_certificates: Some(CaCertificates::parse(AUTHORITY).unwrap()),
        ..*settings(&["*"])
    })
}

fn the_default_tenant_is_there(kind: Kind) {
    let world = World::new(kind);
    let directory = directory(&world);
    assert!(directory.has_tenant(&TenantId::default_tenant()));
    assert_eq!(directory.tenants().count(), 1);
    assert_eq!(directory.all().count(), 0);
}

fn a_tenant_is_made_once(kind: Kind) {
    let world = World::new(kind);
    let change = create_tenant("shop");
    assert!(matches!(world.change(change.clone()), Ok(Changed::Nothing)));
    assert!(directory(&world).has_tenant(&tenant("shop")));
    assert_eq!(world.change(change).map(drop), refused(Refusal::Taken));
    let default = create_tenant("default");
    assert_eq!(world.change(default).map(drop), refused(Refusal::Taken));
    assert_eq!(directory(&world).tenants().count(), 2);
}

fn an_endpoint_is_as_it_was_made(kind: Kind) {
    let world = World::new(kind);
    let made = world.change(Change::CreateEndpoint {
        tenant: world.tenant.clone(),
        settings: rich(),
        secrets: secrets(9),
    });
    let made = made.unwrap().endpoint().unwrap();
    let expected = Endpoint {
        id: made.id,
        tenant: world.tenant.clone(),
        state: Enabled,
        disabled: None,
        version: 1,
        created_at: world.now,
        updated_at: world.now,
        settings: *rich(),
        secrets: secrets(9),
    };
    assert_eq!(whole(&made), whole(&expected));
    assert_eq!(whole(&endpoint(&world, made.id)), whole(&made));
    assert!(directory(&world).endpoint_of(&world.tenant, made.id).is_some());
    assert_eq!(made.id.created_at(), world.now);
}

fn an_endpoint_is_changed_from_the_version_that_was_read(kind: Kind) {
    let mut world = World::new(kind);
    let first = endpoint(&world, world.endpoint());
    world.advance(secs(3));
    let second = world.change(update(&first, rich())).unwrap().endpoint().unwrap();
    let expected = Endpoint {
        version: 2,
        updated_at: world.now,
        settings: *rich(),
        ..Endpoint::clone(&first)
    };
    assert_eq!(whole(&second), whole(&expected));
    assert_eq!(whole(&endpoint(&world, first.id)), whole(&expected));
    let late = world.change(update(&first, settings(&["late"])));
    assert_eq!(late.map(drop), refused(Refusal::VersionChanged));
    assert_eq!(whole(&endpoint(&world, first.id)), whole(&expected));
    world.change(update(&second, settings(&["*"]))).unwrap();
    assert_eq!(endpoint(&world, first.id).version, 3);
}

fn a_secret_is_rotated(kind: Kind) {
    let mut world = World::new(kind);
    let first = endpoint(&world, world.endpoint());
    let rotate = |byte: u8| Change::RotateSecret {
        tenant: first.tenant.clone(),
        endpoint: first.id,
        secret: secret(byte),
        overlap: secs(60),
    };
    world.advance(secs(3));
    let second = world.change(rotate(2)).unwrap().endpoint().unwrap();
    let secrets = first.secrets.rotate(secret(2), world.now, secs(60)).unwrap();
    let (version, updated_at) = (2, world.now);
    let expected = Endpoint { version, updated_at, secrets, ..Endpoint::clone(&first) };
    assert_eq!(whole(&second), whole(&expected));
    assert_eq!(whole(&endpoint(&world, first.id)), whole(&expected));
    world.change(rotate(3)).unwrap();
    world.change(rotate(4)).unwrap();
    let before = endpoint(&world, first.id);
    assert_eq!(world.change(rotate(5)).map(drop), refused(Refusal::Secrets(TooManySecrets)));
    assert_eq!(whole(&endpoint(&world, first.id)), whole(&before));
    world.advance(secs(60));
    world.change(rotate(5)).unwrap();
    let live = endpoint(&world, first.id);
    let live: Vec<_> = live.secrets.live(world.now).collect();
    assert_eq!(live, [&secret(5), &secret(4)]);
}

fn what_does_not_exist_is_not_found(kind: Kind) {
    let world = World::new(kind);
    let mut unknown = Endpoint::clone(&endpoint(&world, world.endpoint()));
    unknown.id = EndpointId::from_bits(unknown.id.bits() ^ (1 << 16));
    let change = update(&unknown, settings(&["*"]));
    assert_eq!(world.change(change).map(drop), refused(Refusal::NotFound));
    assert_eq!(world.try_change_state(unknown.id, Pause).map(drop), refused(Refusal::NotFound));
    let nobodys = Change::CreateEndpoint {
        tenant: tenant("nobody"),
        settings: settings(&["*"]),
        secrets: secrets(1),
    };
    assert_eq!(world.change(nobodys).map(drop), refused(Refusal::NotFound));
    assert_eq!(directory(&world).all().count(), 1);
}

fn a_deleted_endpoint_is_history(kind: Kind) {
    let world = World::new(kind);
    let id = world.endpoint();
    world.publish(events(1));
    let delivery = world.send(id, 200);
    world.change_state(id, Delete);
    world.run_jobs();
    let deleted = endpoint(&world, id);
    let deleted_already = refused(Refusal::Endpoint(IllegalVerb::Deleted));
    for verb in [Enable, Pause, Resume, Disable, Delete] {
        assert_eq!(world.try_change_state(id, verb).map(drop), deleted_already);
    }
    let change = update(&deleted, settings(&["*"]));
    assert_eq!(world.change(change).map(drop), deleted_already);
    assert_eq!(whole(&endpoint(&world, id)), whole(&deleted));
    assert_eq!(world.delivery(delivery).record.endpoint, id);
    assert_eq!(world.attempts(delivery).len(), 1);
}

fn a_change_holds_for_the_next_event(kind: Kind) {
    let world = World::new(kind);
    let count = || world.publish_one(event(TYPE, "1")).deliveries;
    assert_eq!(count(), 0);
    let id = world.endpoint();
    assert_eq!(count(), 1);
    let change = update(&endpoint(&world, id), settings(&["invoice.*"]));
    let changed = world.change(change).unwrap().endpoint().unwrap();
    assert_eq!(count(), 0);
    world.change(update(&changed, settings(&[TYPE]))).unwrap();
    assert_eq!(count(), 1);
    world.change_state(id, Disable);
    assert_eq!(count(), 0);
    world.run_jobs();
    world.change_state(id, Enable);
    assert_eq!(count(), 1);
    world.change_state(id, Delete);
    assert_eq!(count(), 0);
}

fn endpoints_are_listed_oldest_first(kind: Kind) {
    let mut world = World::new(kind);
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(world.endpoint());
        made.push(world.endpoint());
        world.advance(secs(1));
    }
    world.change_state(made[3], Pause);
    let directory = directory(&world);
    let listed = directory.endpoints_of(&world.tenant).iter().map(|endpoint| endpoint.id);
    assert_eq!(listed.collect::<Vec<_>>(), made);
}

fn a_tenant_has_only_so_many_endpoints(kind: Kind) {
    let mut world = World::new(kind);
    let first = world.endpoint();
    world.multiply_endpoint(ENDPOINTS_PER_TENANT_MAX - 1);
    let create = |tenant: &TenantId| Change::CreateEndpoint {
        tenant: tenant.clone(),
        settings: settings(&["none"]),
        secrets: secrets(1),
    };
    world.change(create(&world.tenant)).unwrap();
    let beyond = world.change(create(&world.tenant)).map(drop);
    assert_eq!(beyond, refused(Refusal::TooManyEndpoints));
    let other = world.add_tenant("other");
    world.change(create(&other)).unwrap();
    world.change_state(first, Disable);
    assert!(world.change(create(&world.tenant)).is_err(), "a disabled one counts");
    world.change_state(first, Delete);
    world.change(create(&world.tenant)).unwrap();
    assert_eq!(directory(&world).endpoints_of(&world.tenant).len(), ENDPOINTS_PER_TENANT_MAX + 1);
    let accepted = world.publish_one(event(TYPE, "1"));
    assert_eq!(accepted.deliveries as usize, ENDPOINTS_PER_TENANT_MAX - 2, "all that want it");
    assert_eq!(world.deliveries_for(accepted.id).len(), ENDPOINTS_PER_TENANT_MAX - 2);
}

fn changes_are_told(kind: Kind) {
    let world = World::new(kind);
    let version = directory(&world).version();
    let id = world.endpoint();
    assert_eq!(world.lanes.directory_changes(), 1);
    assert!(directory(&world).version() > version);
    assert_eq!(world.lanes.job_hints(), 0);
    world.change_state(id, Pause);
    assert_eq!((world.lanes.directory_changes(), world.lanes.job_hints()), (2, 0));
    world.change_state(id, Disable);
    assert_eq!((world.lanes.directory_changes(), world.lanes.job_hints()), (3, 0), "no work");
    world.change_state(id, Enable);
    world.publish(events(1));
    world.change_state(id, Disable);
    assert_eq!((world.lanes.directory_changes(), world.lanes.job_hints()), (5, 1));
}

fn changes_survive_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let shop = world.add_tenant("shop");
    let id = world.endpoint_for(&shop, &["*"]);
    world.change(update(&endpoint(&world, id), rich())).unwrap();
    world.change_state(world.endpoint(), Disable);
    world.change_state(world.endpoint(), Delete);
    let all = |world: &World| {
        let directory = directory(world);
        let mut all: Vec<_> = directory.all().map(|endpoint| whole(endpoint)).collect();
        all.sort_by_key(|((id, ..), ..)| *id);
        all
    };
    let before = all(&world);
    world.crash();
    assert_eq!(all(&world), before);
    assert_eq!(directory(&world).tenants().count(), 2);
    let newest = world.endpoint();
    assert!(before.iter().all(|((id, ..), ..)| *id < newest));
}

fn a_race_of_changes_has_one_winner(kind: Kind) {
    let world = World::new(kind);
    let first = endpoint(&world, world.endpoint());
    let change = update(&first, rich());
    let outcomes = world.at_once(20, |_, store, now| {
        let change = change.clone();
        async move { store.change(change, None, now).await.map(drop) }
    });
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!((won, endpoint(&world, first.id).version), (1, 2));
    let lost = outcomes.iter().filter(|o| **o == refused(Refusal::VersionChanged)).count();
    assert_eq!(lost, 19);
}
