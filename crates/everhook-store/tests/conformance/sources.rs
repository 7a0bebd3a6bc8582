//! Sources: the rules of the directory, and how they are stored.

use std::sync::Arc;

use everhook_domain::endpoint::EndpointVerb;
use everhook_domain::id::{EndpointId, SourceId};
use everhook_domain::source::{Source, SourceInput, SourceSettings};
use everhook_domain::tenant::TenantId;
use everhook_store::{Change, Changed, Refusal, SOURCES_PER_TENANT_MAX, StoreError};

use crate::backend::Kind;
use crate::sealing::{key, sealer};
use crate::sketch::secs;
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(a_source_is_there_as_it_was_made),
        case(an_update_replaces_what_its_version_has),
        case(a_name_is_one_sources_in_its_tenant),
        case(a_name_stays_while_an_endpoint_takes_events_by_it_alone),
        case(a_deleted_source_leaves_its_name),
        case(a_tenant_has_room_for_so_many),
        case(what_is_not_there_cannot_be_changed),
        case(its_secrets_are_stored_sealed),
        case(a_source_that_cannot_be_read_hurts_nobody_else),
        case(sources_go_with_their_tenant),
    ]
}

const SECRET: &str = "hunter2-of-the-provider";

/// Settings of a kind that needs a secret.
fn named(name: &str) -> SourceSettings {
    let secrets = vec![SECRET.to_owned()];
    let input =
        SourceInput { name: name.into(), kind: "stripe".into(), secrets, ..Default::default() };
    SourceSettings::parse(input).unwrap()
}

fn create(tenant: &TenantId, name: &str) -> Change {
    Change::CreateSource { tenant: tenant.clone(), settings: Box::new(named(name)) }
}

fn update(source: &Source, settings: SourceSettings) -> Change {
    Change::UpdateSource {
        tenant: source.tenant.clone(),
        source: source.id,
        expected_version: source.version,
        settings: Box::new(settings),
    }
}

fn made(world: &World, name: &str) -> Arc<Source> {
    world.change(create(&world.tenant, name)).unwrap().source().unwrap()
}

fn delete(world: &World, source: &Source) -> Result<(), StoreError> {
    let (tenant, source) = (source.tenant.clone(), source.id);
    let changed = world.change(Change::DeleteSource { tenant, source })?;
    assert!(matches!(changed, Changed::Nothing));
    Ok(())
}

fn read(world: &World, id: SourceId) -> Option<Arc<Source>> {
    world.store.directory().unwrap().source(id).cloned()
}

fn names(world: &World, tenant: &TenantId) -> Vec<String> {
    let directory = world.store.directory().unwrap();
    directory.sources_of(tenant).map(|source| source.settings.name.to_string()).collect()
}

/// Whether the directory has exactly this source, in every way to ask for it.
#[track_caller]
fn check_there(world: &World, source: &Source) {
    let directory = world.store.directory().unwrap();
    let name = &source.settings.name;
    for found in [
        directory.source(source.id),
        directory.source_of(&source.tenant, source.id),
        directory.source_named(&source.tenant, name),
    ] {
        let found = found.unwrap();
        assert_eq!((found.id, found.version), (source.id, source.version));
        assert_eq!((found.created_at, found.updated_at), (source.created_at, source.updated_at));
        assert_eq!((&found.settings, &found.unusable), (&source.settings, &source.unusable));
    }
    assert_eq!(directory.source_name(source.id), Some(name));
    let other = "other".parse().unwrap();
    assert!(directory.source_of(&other, source.id).is_none());
    assert!(directory.source_named(&other, name).is_none());
}

fn a_source_is_there_as_it_was_made(kind: Kind) {
    let mut world = World::new(kind);
    let (one, two) = (made(&world, "b"), made(&world, "a"));
    assert_eq!((one.version, &one.settings), (1, &named("b")));
    assert!(one.id < two.id);
    for _ in 0..2 {
        check_there(&world, &one);
        check_there(&world, &two);
        assert_eq!(names(&world, &world.tenant), ["a", "b"]);
        world.crash();
    }
}

fn an_update_replaces_what_its_version_has(kind: Kind) {
    let mut world = World::new(kind);
    let first = made(&world, "a");
    world.advance(secs(5));
    let mut settings = named("renamed");
    settings.window = Some(secs(60));
    let second = world.change(update(&first, settings.clone())).unwrap().source().unwrap();
    assert_eq!((second.id, second.version, second.updated_at), (first.id, 2, world.now));
    assert_eq!((second.created_at, &second.settings), (first.created_at, &settings));
    for _ in 0..2 {
        check_there(&world, &second);
        assert_eq!(names(&world, &world.tenant), ["renamed"]);
        let late = world.change(update(&first, named("late"))).map(drop);
        assert_eq!(late, Err(Refusal::VersionChanged.into()));
        world.crash();
    }
}

fn a_name_is_one_sources_in_its_tenant(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let (one, two) = (made(&world, "a"), made(&world, "b"));
    let taken = || Err(Refusal::NameTaken.into());
    assert_eq!(world.change(create(&world.tenant, "a")).map(drop), taken());
    assert_eq!(world.change(update(&two, named("a"))).map(drop), taken());
    world.change(create(&other, "a")).unwrap();
    let again = world.change(update(&one, named("a"))).unwrap().source().unwrap();
    world.change(update(&again, named("c"))).unwrap();
    world.change(update(&two, named("a"))).unwrap();
    assert_eq!(names(&world, &world.tenant), ["a", "c"]);
}

fn a_name_stays_while_an_endpoint_takes_events_by_it_alone(kind: Kind) {
    let world = World::new(kind);
    let source = made(&world, "a");
    let endpoints: Vec<_> = (0..3).map(|_| world.inbox(&["a", "b"])).collect();
    world.inbox(&["c"]);
    let other = world.add_tenant("other");
    let rename = |name| world.change(update(&source, named(name))).map(drop);
    let still_named = |of: &[EndpointId]| Err(Refusal::StillNamed(of.to_vec()).into());
    assert_eq!(rename("d"), still_named(&endpoints));
    check_there(&world, &source);
    world.change(create(&other, "a")).unwrap();
    // Neither who names the new name too nor who is deleted is cut off; who is disabled is.
    world.change_state(endpoints[0], EndpointVerb::Disable);
    world.change_state(endpoints[1], EndpointVerb::Delete);
    assert_eq!(rename("d"), still_named(&[endpoints[0], endpoints[2]]));
    rename("b").unwrap();
    assert_eq!(names(&world, &world.tenant), ["b"]);
    assert_eq!(names(&world, &other), ["a"]);
}

fn a_deleted_source_leaves_its_name(kind: Kind) {
    let mut world = World::new(kind);
    let first = made(&world, "a");
    delete(&world, &first).unwrap();
    for _ in 0..2 {
        let directory = world.store.directory().unwrap();
        assert!(directory.source(first.id).is_none());
        assert!(directory.source_named(&world.tenant, &first.settings.name).is_none());
        assert_eq!(directory.source_name(first.id), Some(&first.settings.name));
        assert_eq!(delete(&world, &first), Err(Refusal::NotFound.into()));
        world.crash();
    }
    let second = made(&world, "a");
    assert!(second.id != first.id);
    check_there(&world, &second);
    // Nothing that was secret is kept of the first.
    assert_eq!(world.stored(first.id), ["", ""]);
}

fn a_tenant_has_room_for_so_many(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let last = (0..SOURCES_PER_TENANT_MAX).map(|n| made(&world, &format!("s{n}"))).last().unwrap();
    let beyond = world.change(create(&world.tenant, "beyond")).map(drop);
    assert_eq!(beyond, Err(Refusal::TooManySources.into()));
    world.change(create(&other, "beyond")).unwrap();
    delete(&world, &last).unwrap();
    world.change(create(&world.tenant, "beyond")).unwrap();
}

fn what_is_not_there_cannot_be_changed(kind: Kind) {
    let world = World::new(kind);
    let source = made(&world, "a");
    let not_found = || Err(Refusal::NotFound.into());
    assert_eq!(world.change(create(&"nobody".parse().unwrap(), "a")).map(drop), not_found());
    let elsewhere = Source { tenant: world.add_tenant("other"), ..(*source).clone() };
    assert_eq!(world.change(update(&elsewhere, named("b"))).map(drop), not_found());
    assert_eq!(delete(&world, &elsewhere), not_found());
    check_there(&world, &source);
}

fn its_secrets_are_stored_sealed(kind: Kind) {
    let mut world = World::new(kind);
    let (source, other) = (made(&world, "a"), made(&world, "b"));
    assert!(world.stored(source.id)[1].contains(SECRET), "without a key it is stored as it is");
    for (current, old) in [(1, [].as_slice()), (2, &[1]), (2, &[])] {
        world.restart_sealed(sealer(current, old)).unwrap();
        check_there(&world, &source);
        for stored in world.stored(source.id) {
            assert!(stored.starts_with(&format!("sealed:1:{}:", key(current).id())), "{stored}");
            assert!(!stored.contains("stripe") && !stored.contains(SECRET), "{stored}");
        }
    }
    // A value of another source does not open.
    let [_, secrets] = world.stored(source.id);
    world.store_as(other.id, "secrets", &secrets);
    check_there(&world, &source);
    assert!(read(&world, other.id).unwrap().unusable.is_some());
    let changed = world.change(update(&source, named("c"))).unwrap().source().unwrap();
    assert!(world.stored(source.id)[1].starts_with("sealed:1:"));
    check_there(&world, &changed);
}

fn a_source_that_cannot_be_read_hurts_nobody_else(kind: Kind) {
    let mut world = World::new(kind);
    let (good, broken) = (made(&world, "good"), made(&world, "broken"));
    for (column, text) in [
        ("settings", "not even JSON"),
        ("settings", r#"{"name":"broken","kind":"from the future"}"#),
        ("settings", r#"{"name":"other","kind":"stripe"}"#),
        ("secrets", "{}"),
        ("secrets", "[]"),
    ] {
        world.store_as(broken.id, column, text);
        let read = read(&world, broken.id).unwrap();
        assert!(read.unusable.is_some(), "{column}: {text}");
        assert_eq!(read.settings.name, broken.settings.name);
        check_there(&world, &good);
        let mended = world.change(update(&read, named("broken"))).unwrap().source().unwrap();
        world.crash();
        assert_eq!(mended.unusable, None);
        check_there(&world, &mended);
    }
    world.store_as(broken.id, "name", "No Name!");
    let read = read(&world, broken.id).unwrap();
    assert!(read.settings.name.as_str().starts_with("unreadable-"));
    let mended = world.change(update(&read, named("mended"))).unwrap().source().unwrap();
    world.crash();
    check_there(&world, &mended);
}

fn sources_go_with_their_tenant(kind: Kind) {
    let mut world = World::new(kind);
    let shop = world.add_tenant("shop");
    let kept = made(&world, "a");
    let gone = world.change(create(&shop, "a")).unwrap().source().unwrap();
    let deleted = world.change(create(&shop, "b")).unwrap().source().unwrap();
    delete(&world, &deleted).unwrap();
    world.change(Change::DeleteTenant(shop.clone())).unwrap();
    for _ in 0..2 {
        let directory = world.store.directory().unwrap();
        for id in [gone.id, deleted.id] {
            assert!(directory.source(id).is_none() && directory.source_name(id).is_none());
        }
        check_there(&world, &kept);
        world.crash();
    }
    world.run_jobs();
    assert_eq!(world.rows()["sources"], 1);
    // Its number is given to nobody else.
    world.add_tenant("shop");
    let next = world.change(create(&shop, "a")).unwrap().source().unwrap();
    assert!(next.id.sequence() != gone.id.sequence());
    assert!(next.id.sequence() != deleted.id.sequence());
}
