//! `receive`: keys in their windows, conflicts, guards, and what becomes of the items of a request.

use std::collections::BTreeMap;

use everhook_domain::delivery::State;
use everhook_domain::endpoint::EndpointVerb;
use everhook_domain::event::Origin;
use everhook_domain::id::ReceiptId;
use everhook_domain::inbound::DedupeKey;
use everhook_domain::receipt::{ReceiptReason, ReceiptStatus};
use everhook_store::Verdict::{Accepted, Conflict, Duplicate, Unreadable};
use everhook_store::{
    Change, JobStep, NewReceipt, ReceiptQuery, Receive, Received, Refusal, Verdict,
};

use crate::backend::Kind;
use crate::inbox::{WINDOW_S, guarded, headers, item, marked, request, unreadable};
use crate::sketch::{event_type, events, ms, publish_in, secs};
use crate::world::World;
use crate::{Case, case};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case(what_is_received_is_stored_and_forwarded),
        case(deliveries_with_room_are_handed_over),
        case(case_039_a_thousand_copies_at_once_run_once),
        case(simultaneous_arrays_share_no_item),
        case(case_040_a_key_is_within_its_source_and_tenant),
        case(case_042_other_content_is_kept_and_does_not_run),
        case(case_046_an_array_is_stored_whole),
        case(ten_thousand_items_in_one_request),
        case(equal_keys_inside_one_request),
        case(a_changed_body_under_a_providers_id_is_marked),
        case(case_071_signed_bytes_under_another_key_do_not_run),
        case(case_112_a_forged_key_suppresses_nothing),
        case(what_is_not_there_receives_nothing),
        case(everything_survives_a_crash),
        case(large_bodies_come_back_whole),
        case(bulk_work_lets_webhooks_through),
    ]
}

pub(crate) const ONE: ReceiptQuery =
    ReceiptQuery { source: None, status: None, duplicates_min: None };

fn what_is_received_is_stored_and_forwarded(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let other = world.inbox(&["other"]);
    let everything = world.endpoint();
    // Not text, and no JSON: it is stored and sent as it came.
    let body = b"\xff\x00{\"a\":1";
    let sent = NewReceipt { body: body.to_vec().into(), ..item("k1", "") };
    let sent = NewReceipt { key: DedupeKey::new(&["k", "\0"]), ..sent };
    let received = world.receive_one(source, sent);
    assert_eq!(received.verdict, Accepted);
    let event = received.receipt.event();
    let detail = world.event(event);
    assert_eq!((&detail.body[..], detail.record.source), (&body[..], Some(source)));
    assert_eq!((detail.record.origin, detail.record.deliveries), (Origin::Received, 1));
    assert_eq!(detail.record.event_type, event_type("shop.order"));
    assert_eq!((detail.record.timestamp, detail.record.source_event_id), (world.now, None));
    assert_eq!(detail.headers.as_deref(), Some(&headers()));
    assert_eq!(world.events()[0].source, Some(source));
    let receipt = world.receipt(received.receipt);
    assert_eq!((receipt.event(), receipt.source, &*receipt.key), (event, source, "k:\u{fffd}"));
    assert_eq!((receipt.first_seen_at, receipt.last_seen_at), (world.now, world.now));
    assert_eq!((receipt.duplicates, receipt.body_changed), (0, false));
    assert_eq!((receipt.status, &receipt.reason), (ReceiptStatus::Accepted, &None));
    assert_eq!((receipt.processed_at, receipt.released_at), (None, None));
    let lease = world.claim_one(endpoint);
    assert_eq!((lease.id, &lease.body[..]), (event.delivery(1), &body[..]));
    assert_eq!(lease.headers.as_deref(), Some(&headers()));
    world.finish(&lease, 200);
    assert_eq!(world.receipt(received.receipt).processed_at, Some(world.now + ms(12)));
    for lane in [other, everything] {
        assert!(world.claim_all(lane).is_empty());
    }
    world.publish_one(events(1).remove(0));
    assert_eq!(world.claim_one(everything).headers, None);
}

fn deliveries_with_room_are_handed_over(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    world.lanes.give(endpoint, 2);
    let received = world.receive(source, vec![item("a", "1"), item("a", "1"), item("b", "2")]);
    let handed = world.lanes.handed();
    let ids: Vec<_> = handed.iter().map(|lease| lease.id).collect();
    let [first, _, second] = &received[..] else { panic!("{received:?}") };
    assert_eq!(ids, [first.receipt.event().delivery(1)], "the second item took the other permit");
    assert_eq!(handed[0].headers.as_deref(), Some(&headers()));
    assert_eq!(world.lanes.free(endpoint), 1, "a duplicate gives its permit back");
    assert_eq!(world.claim_one(endpoint).id, second.receipt.event().delivery(1));
    world.finish(&handed[0], 200);
    assert_eq!(world.state(handed[0].id), State::Delivered);
}

fn count(verdicts: impl IntoIterator<Item = Verdict>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for verdict in verdicts {
        *counts.entry(format!("{verdict:?}")).or_default() += 1;
    }
    counts
}

fn case_039_a_thousand_copies_at_once_run_once(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let tenant = world.tenant.clone();
    let received: Vec<Received> = world
        .at_once(1_000, |_, store, now| {
            let receive = request(&tenant, source, vec![guarded("k", "{}", 1)]);
            async move { store.receive(receive, now).await.unwrap() }
        })
        .concat();
    let expected = [("Accepted".into(), 1), ("Duplicate".into(), 999)];
    let verdicts = received.iter().map(|received| received.verdict);
    assert_eq!(count(verdicts), BTreeMap::from(expected));
    let first = received[0].receipt;
    assert!(received.iter().all(|received| received.receipt == first));
    let receipts = world.receipts(ONE);
    assert_eq!((receipts.len(), receipts[0].id, receipts[0].duplicates), (1, first, 999));
    assert_eq!(world.claim_all(endpoint).len(), 1);
}

/// Requests whose items overlap, in every order: each key is accepted once, by whomever.
fn simultaneous_arrays_share_no_item(kind: Kind) {
    let world = World::new(kind);
    let source = world.source("shop");
    let tenant = world.tenant.clone();
    let received: Vec<Received> = world
        .at_once(60, |number, store, now| {
            let mut items: Vec<_> = (0..20)
                .map(|n| guarded(&format!("k{}", (n + number) % 30), "{}", n as u8))
                .collect();
            // Keys differ in their guard from request to request, and conflicts do too.
            items.push(item("shared", &format!("content {}", number % 3)));
            if number % 2 == 0 {
                items.reverse();
            }
            let receive = request(&tenant, source, items);
            async move { store.receive(receive, now).await.unwrap() }
        })
        .concat();
    assert_eq!(received.len(), 60 * 21);
    let kept = received.iter().filter(|received| received.verdict != Duplicate);
    let mut kept: Vec<ReceiptId> = kept.map(|received| received.receipt).collect();
    kept.sort_unstable();
    let mut receipts: Vec<_> = world.receipts(ONE);
    receipts.reverse();
    assert_eq!(kept, receipts.iter().map(|receipt| receipt.id).collect::<Vec<_>>());
    let duplicates: u64 = receipts.iter().map(|receipt| receipt.duplicates).sum();
    assert_eq!(duplicates as usize, received.len() - receipts.len());
    let shared: Vec<_> = receipts.iter().filter(|receipt| receipt.key == "shared").collect();
    let accepted = shared.iter().filter(|receipt| receipt.status == ReceiptStatus::Accepted);
    assert_eq!((shared.len(), accepted.count()), (3, 1));
    // Every key runs once at most; where all of its bytes came under another key, it waits.
    for n in 0..30 {
        let key = format!("k{n}");
        let of_key = receipts.iter().filter(|receipt| receipt.key == key);
        let ran = of_key.filter(|receipt| receipt.status == ReceiptStatus::Accepted).count();
        assert!(ran <= 1, "{key} ran {ran} times");
    }
}

fn case_040_a_key_is_within_its_source_and_tenant(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let (one, two) = (world.source("one"), world.source("two"));
    let theirs = world.source_in(&other, "one", None);
    let again = || guarded("k", "{}", 1);
    assert_eq!(world.verdict(one, again()), Accepted);
    assert_eq!(world.verdict(two, again()), Accepted);
    let received = world.try_receive(request(&other, theirs, vec![again()])).unwrap();
    assert_eq!(received[0].verdict, Accepted);
    for source in [one, two] {
        assert_eq!(world.verdict(source, again()), Duplicate);
    }
    // A published event with this source event ID is another thing altogether.
    assert!(!world.publish_one(crate::sketch::keyed("k", "{}")).duplicate);
}

fn case_042_other_content_is_kept_and_does_not_run(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source_in(&world.tenant, "mail", Some(24 * 3_600));
    let endpoint = world.inbox(&["mail"]);
    let first = world.receive_one(source, item("k", "one"));
    world.advance(secs(600));
    let other = world.receive_one(source, item("k", "two"));
    assert_eq!((first.verdict, other.verdict), (Accepted, Conflict));
    let record = world.receipt(other.receipt);
    assert_eq!(record.status, ReceiptStatus::Conflict);
    assert_eq!(record.reason, Some(ReceiptReason::OtherContent(first.receipt)));
    assert_eq!(world.event_record(record.event()).deliveries, 0);
    assert_eq!(&world.event(other.receipt.event()).body[..], b"two");
    // Its own retries are its duplicates, the first one's are the first one's.
    for (content, of) in [("two", other), ("one", first), ("two", other)] {
        let again = world.receive_one(source, item("k", content));
        assert_eq!(again, Received { receipt: of.receipt, verdict: Duplicate });
    }
    assert_eq!(world.verdict(source, item("k", "three")), Conflict);
    assert_eq!(world.receipt(other.receipt).duplicates, 2);
    assert_eq!(world.receipt(first.receipt).duplicates, 1);
    assert_eq!(world.claim_all(endpoint).len(), 1, "only the first runs");
    world.advance(secs(25 * 3_600));
    assert_eq!(world.verdict(source, item("k", "two")), Accepted, "the window is over");
}

fn case_046_an_array_is_stored_whole(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    assert_eq!(world.verdict(source, item("seen", "0")), Accepted);
    let items = || {
        vec![
            item("new", "1"),
            item("seen", "0"),
            unreadable("broken", "2"),
            item("twice", "3"),
            item("twice", "3"),
        ]
    };
    let received = world.receive(source, items());
    let verdicts: Vec<_> = received.iter().map(|received| received.verdict).collect();
    assert_eq!(verdicts, [Accepted, Duplicate, Unreadable, Accepted, Duplicate]);
    assert!(received[0].receipt < received[2].receipt && received[2].receipt < received[3].receipt);
    let dead = world.receipt(received[2].receipt);
    assert_eq!(dead.status, ReceiptStatus::Dead);
    assert_eq!(dead.reason, Some(ReceiptReason::Unreadable("not JSON".into())));
    assert_eq!(world.event_record(dead.event()).deliveries, 0);
    assert_eq!(world.claim_all(endpoint).len(), 3);
    assert_eq!(world.verdicts(source, items()), [Duplicate; 5]);
    assert_eq!(world.receive(source, vec![]), []);
    assert_eq!(world.receipts(ONE).len(), 4);
}

fn ten_thousand_items_in_one_request(kind: Kind) {
    let mut world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let items = || (0..10_000).map(|n| item(&format!("k{n}"), &n.to_string())).collect::<Vec<_>>();
    let received = world.receive(source, items());
    assert!(received.iter().all(|received| received.verdict == Accepted));
    assert!(received.is_sorted_by(|one, next| one.receipt < next.receipt));
    assert_eq!(world.claim_all(endpoint).len(), 10_000);
    for place in [0, 4_999, 9_999] {
        let event = world.event(received[place].receipt.event());
        assert_eq!(&event.body[..], place.to_string().as_bytes());
        assert_eq!(event.headers.as_deref(), Some(&headers()));
    }
    let again = world.receive(source, items());
    assert!(again.iter().zip(&received).all(|(again, first)| again.receipt == first.receipt));
    assert!(again.iter().all(|received| received.verdict == Duplicate));
    let rows = world.rows();
    assert_eq!((rows["receipts"], rows["events"]), (10_000, 10_000));
    assert_eq!(rows["received_headers"], 1, "the headers are stored once");
}

fn equal_keys_inside_one_request(kind: Kind) {
    let world = World::new(kind);
    let source = world.source("shop");
    let received = world.receive(
        source,
        vec![
            item("a", "1"),
            item("a", "2"),
            item("a", "2"),
            item("a", "1"),
            marked("b", "1"),
            marked("b", "2"),
            guarded("c", "1", 7),
            guarded("d", "1", 7),
            guarded("d", "1", 7),
            guarded("d", "2", 8),
        ],
    );
    let verdicts: Vec<_> = received.iter().map(|received| received.verdict).collect();
    let expected = [
        Accepted, Conflict, Duplicate, Duplicate, Accepted, Duplicate, Accepted, Conflict,
        Duplicate, Accepted,
    ];
    assert_eq!(verdicts, expected);
    let of = |place: usize| received[place].receipt;
    assert_eq!((of(2), of(3), of(5), of(8)), (of(1), of(0), of(4), of(7)));
    assert_eq!(world.receipt(of(0)).duplicates, 1);
    assert_eq!(world.receipt(of(1)).duplicates, 1);
    assert!(world.receipt(of(4)).body_changed && !world.receipt(of(0)).body_changed);
    let reason = world.receipt(of(7)).reason;
    assert_eq!(reason, Some(ReceiptReason::OtherKey(of(6))));
    // What was decided then holds afterwards too.
    assert_eq!(world.receive_one(source, guarded("d", "2", 8)).receipt, of(9));
    assert_eq!(world.receive_one(source, guarded("d", "1", 7)).receipt, of(7));
    assert_eq!(world.receive_one(source, item("a", "2")).receipt, of(1));
}

fn a_changed_body_under_a_providers_id_is_marked(kind: Kind) {
    let world = World::new(kind);
    let source = world.source("shop");
    let first = world.receive_one(source, marked("k", "one"));
    for (content, changed) in [("one", false), ("two", true), ("one", true)] {
        let again = world.receive_one(source, marked("k", content));
        assert_eq!(again, Received { receipt: first.receipt, verdict: Duplicate });
        assert_eq!(world.receipt(first.receipt).body_changed, changed, "{content}");
    }
    assert_eq!(&world.event(first.receipt.event()).body[..], b"one");
    assert_eq!(world.receipt(first.receipt).duplicates, 3);
}

fn case_071_signed_bytes_under_another_key_do_not_run(kind: Kind) {
    let mut world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let begun = world.now;
    let first = world.receive_one(source, guarded("k", "{}", 1));
    world.advance(secs(60));
    let changed = world.receive_one(source, guarded("changed", "{}", 1));
    let removed = world.receive_one(source, guarded("sha256=…", "{}", 1));
    for captured in [changed, removed] {
        assert_eq!(captured.verdict, Conflict);
        let reason = world.receipt(captured.receipt).reason;
        assert_eq!(reason, Some(ReceiptReason::OtherKey(first.receipt)));
    }
    let again = world.receive_one(source, guarded("changed", "{}", 1));
    assert_eq!(again, Received { receipt: changed.receipt, verdict: Duplicate });
    // The provider's own event under that key is not suppressed by the captured one.
    assert_eq!(world.verdict(source, guarded("changed", "{\"real\":1}", 2)), Accepted);
    // What a retry was signed with is known too.
    assert_eq!(world.verdict(source, guarded("k", "{}", 3)), Duplicate);
    assert_eq!(world.verdict(source, guarded("third", "{}", 3)), Conflict);
    assert_eq!(world.claim_all(endpoint).len(), 2);
    world.now = begun + secs(WINDOW_S);
    assert_eq!(world.verdict(source, guarded("fourth", "{}", 1)), Accepted, "its window is over");
    assert_eq!(world.verdict(source, guarded("fifth", "{}", 3)), Conflict, "its is not");
}

fn case_112_a_forged_key_suppresses_nothing(kind: Kind) {
    let mut world = World::new(kind);
    let source = world.source("mail");
    let forged = world.receive_one(source, item("k", "forged"));
    world.advance(secs(300));
    let real = world.receive_one(source, item("k", "real"));
    assert_eq!((forged.verdict, real.verdict), (Accepted, Conflict));
    assert_ne!(forged.receipt, real.receipt);
    assert_eq!(&world.event(real.receipt.event()).body[..], b"real");
}

fn what_is_not_there_receives_nothing(kind: Kind) {
    let world = World::new(kind);
    let other = world.add_tenant("other");
    let (source, gone) = (world.source("shop"), world.source("gone"));
    let (tenant, not_found) = (world.tenant.clone(), || Err(Refusal::NotFound.into()));
    let kept = world.receive_one(gone, item("k", "1"));
    world.change(Change::DeleteSource { tenant: tenant.clone(), source: gone }).unwrap();
    let receive = |tenant, source| -> Receive { request(tenant, source, vec![item("k", "2")]) };
    assert_eq!(world.try_receive(receive(&other, source)), not_found());
    assert_eq!(world.try_receive(receive(&tenant, gone)), not_found());
    assert_eq!(world.try_receive(receive(&"nobody".parse().unwrap(), source)), not_found());
    assert_eq!((world.receipts(ONE).len(), world.events().len()), (1, 1));
    // What it had received can be shown and sent again, by the name that it had.
    let record = world.receipt(kept.receipt);
    assert_eq!((record.source, world.events()[0].source), (gone, Some(gone)));
    let endpoint = world.inbox(&["gone"]);
    world.send_again(kept.receipt.event(), None).unwrap();
    assert_eq!(world.claim_one(endpoint).id, kept.receipt.event().delivery(1));
    // Another source with its name has nothing to do with its keys.
    let next = world.source("gone");
    assert_eq!(world.verdict(next, item("k", "1")), Accepted);
}

fn everything_survives_a_crash(kind: Kind) {
    let mut world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    world.lanes.give(endpoint, 1);
    let first = world.receive_one(source, guarded("k", "one", 1));
    let second = world.receive_one(source, item("mail", "one"));
    let conflict = world.receive_one(source, item("mail", "two"));
    let dead = world.receive_one(source, unreadable("broken", "x"));
    assert_eq!(world.lanes.handed().len(), 1);
    let before = world.receipts(ONE);
    world.crash();
    assert_eq!(world.receipts(ONE), before);
    assert_eq!(world.lapse(), 1, "what was on its way is due again");
    for (again, of) in [
        (guarded("k", "one", 1), first),
        (item("mail", "one"), second),
        (item("mail", "two"), conflict),
        (unreadable("broken", "x"), dead),
    ] {
        let again = world.receive_one(source, again);
        assert_eq!(again, Received { receipt: of.receipt, verdict: Duplicate });
    }
    assert_eq!(world.verdict(source, guarded("other", "one", 1)), Conflict);
    let leases = world.claim_all(endpoint);
    assert_eq!(leases.len(), 2);
    assert!(leases.iter().all(|lease| lease.headers.as_deref() == Some(&headers())));
}

fn large_bodies_come_back_whole(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.inbox(&["shop"]));
    let body: Vec<u8> = (0..25 << 20).map(|n: u32| (n % 251) as u8).collect();
    let large = NewReceipt { body: body.clone().into(), ..item("large", "") };
    let received = world.receive_one(source, large);
    let small = world.receive_one(source, item("small", "{}"));
    assert!(world.event(received.receipt.event()).body == body);
    assert!(world.claim_one(endpoint).body == body, "one claim stops at so many bytes");
    assert_eq!(world.claim_one(endpoint).id, small.receipt.event().delivery(1));
}

/// Long work is a step at a time, behind what is accepted; and floods of publishing come in turn.
fn bulk_work_lets_webhooks_through(kind: Kind) {
    let world = World::new(kind);
    let (source, endpoint) = (world.source("shop"), world.endpoint());
    world.publish(events(3_000));
    world.change_state(endpoint, EndpointVerb::Disable);
    let mut between = 0;
    while world.job_step() == JobStep::More {
        assert_eq!(world.verdict(source, item(&format!("k{between}"), "{}")), Accepted);
        between += 1;
    }
    assert!(between >= 6, "{between} steps");
    let tenant = world.tenant.clone();
    let verdicts = world.at_once(400, |number, store, now| {
        let receive = request(&tenant, source, vec![item(&format!("f{number}"), "{}")]);
        let publish = publish_in(&tenant, events(5));
        async move {
            if number % 4 == 0 {
                return Some(store.receive(receive, now).await.unwrap()[0].verdict);
            }
            store.publish(publish, None, now).await.unwrap();
            None
        }
    });
    let accepted = verdicts.into_iter().flatten().filter(|verdict| *verdict == Accepted);
    assert_eq!(accepted.count(), 100);
}
