use bytes::Bytes;
use everhook_domain::attempt::Trigger;
use everhook_domain::delivery::Token;
use everhook_domain::endpoint::{Endpoint, EndpointSettings};
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_domain::header::CustomHeaders;
use everhook_domain::id::DeliveryId;
use everhook_domain::secret::{Secret, SecretSet};
use everhook_domain::subscription::Subscription;
use everhook_domain::tenant::TenantId;

use super::*;

const A: EndpointId = EndpointId::from_bits(1);
const B: EndpointId = EndpointId::from_bits(2);

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn directory(version: u64, states: &[(EndpointId, EndpointState)]) -> Arc<Directory> {
    let endpoints = states.iter().map(|(id, state)| {
        Arc::new(Endpoint {
            id: *id,
            tenant: TenantId::default_tenant(),
            state: *state,
            disabled: None,
            version,
            created_at: at(0),
            updated_at: at(0),
            settings: EndpointSettings {
                url: EndpointUrl::parse("http://a/", false).expect("a URL"),
                description: String::new(),
                headers: CustomHeaders::default(),
                subscription: Subscription::default(),
                requests_per_second: None,
                max_in_flight: None,
                ca_certificates: None,
                unusable: Default::default(),
            },
            secrets: SecretSet::new(Secret::from_bytes([1; 32])),
        })
    });
    Arc::new(Directory::new(version, [], endpoints))
}

fn scheduler(in_flight_max: usize) -> Scheduler {
    let settings = EngineSettings { in_flight_max, ..EngineSettings::default() };
    let mut scheduler = Scheduler::new(&settings, Intake::new(&settings), at(0));
    let enabled = [(A, EndpointState::Enabled), (B, EndpointState::Enabled)];
    scheduler.refresh(directory(1, &enabled), at(0));
    scheduler
}

fn leased(endpoint: EndpointId, share: Share) -> LeasedDelivery {
    LeasedDelivery {
        id: DeliveryId::from_bits(1),
        endpoint,
        token: Token(1),
        until: None,
        number: 1,
        due_at: at(0),
        cause: Trigger::Schedule,
        share,
        body: Bytes::new(),
        headers: None,
    }
}

fn nothing_due(endpoint: EndpointId) -> LaneDue {
    LaneDue { endpoint, fresh: None, retry: None, suspect: None, too_heavy: None }
}

fn ended(endpoint: EndpointId) -> Ended {
    let attempt = Some((true, Duration::ZERO));
    Ended { endpoint, share: Share::Fresh, claimed_bytes: 0, attempt, hold_until: None }
}

#[test]
fn a_hint_that_comes_while_a_claim_is_under_way_is_not_lost() {
    let mut scheduler = scheduler(512);
    scheduler.hint(A, Share::Fresh, at(0), at(0));
    assert!(scheduler.decide(true, at(0)).is_empty());
    let (wanted, _) = scheduler.claim().expect("a claim");
    assert_eq!(wanted, [Wanted { endpoint: A, fresh: 4, retry: 0, suspect: 0, held: 0 }]);
    assert_eq!(scheduler.claim(), None, "one at a time");
    // Committed after the claim was, told before it is answered.
    scheduler.hint(A, Share::Retry, at(5), at(1));
    scheduler.claimed(vec![leased(A, Share::Fresh)], vec![nothing_due(A)], at(2));
    assert_eq!(scheduler.decide(true, at(2)).len(), 1);
    assert_eq!(scheduler.wake_at(true, at(2)), Some(at(5)));
    scheduler.decide(true, at(5));
    assert_eq!(scheduler.claim().expect("a claim").0[0].retry, 4);
}

#[test]
fn the_table_s_word_replaces_what_was_thought_due() {
    let mut scheduler = scheduler(512);
    scheduler.hint(A, Share::Fresh, at(100), at(0));
    scheduler.asking_all();
    scheduler.hint(B, Share::Retry, at(300), at(0));
    scheduler.all_due(Vec::new(), at(0));
    scheduler.decide(true, at(0));
    assert_eq!(scheduler.wake_at(true, at(0)), Some(at(300)), "the older hint is void");
}

#[test]
fn the_timer_holds_lanes_and_wakes_for_the_earliest() {
    let mut scheduler = scheduler(512);
    for ms in (1_000..10_000).rev() {
        scheduler.hint(A, Share::Retry, at(ms), at(0));
        scheduler.decide(true, at(0));
    }
    scheduler.hint(B, Share::Fresh, at(2_000), at(0));
    scheduler.decide(true, at(0));
    assert_eq!(scheduler.timer.len(), 2);
    assert_eq!(scheduler.wake_at(true, at(0)), Some(at(1_000)));
    scheduler.decide(true, at(1_000));
    assert_eq!(scheduler.wake_at(true, at(1_000)), Some(at(2_000)));
}

#[test]
fn a_claim_that_finds_nothing_of_what_is_due_is_no_busy_loop() {
    let mut scheduler = scheduler(512);
    scheduler.hint(A, Share::Fresh, at(0), at(0));
    scheduler.decide(true, at(0));
    scheduler.claim().expect("a claim");
    let still_due = LaneDue { fresh: Some(at(0)), ..nothing_due(A) };
    scheduler.claimed(Vec::new(), vec![still_due], at(0));
    scheduler.decide(true, at(0));
    assert_eq!(scheduler.claim(), None);
    assert_eq!(scheduler.wake_at(true, at(0)), Some(at(100)));
}

#[test]
fn those_who_waited_for_a_slot_go_on_when_one_is_given_back() {
    let mut scheduler = scheduler(4);
    scheduler.hint(A, Share::Fresh, at(0), at(0));
    scheduler.decide(true, at(0));
    let wanted = scheduler.claim().expect("a claim").0[0];
    assert_eq!(wanted.fresh, 2, "as much is left free as it has");
    scheduler.hint(B, Share::Fresh, at(0), at(0));
    scheduler.decide(true, at(0));
    assert_eq!(scheduler.asking.len(), 1, "one slot for the other lane");
    scheduler.claimed(Vec::new(), vec![nothing_due(A)], at(1));
    scheduler.decide(true, at(1));
    let wanted = scheduler.claim().expect("a claim").0[0];
    assert_eq!((wanted.endpoint, wanted.fresh), (B, 2), "nothing had begun, nothing had ended");
    scheduler.claimed(vec![leased(B, Share::Fresh); 2], vec![nothing_due(B)], at(2));
    assert_eq!(scheduler.decide(true, at(2)).len(), 2);
    scheduler.ended(ended(B), at(3));
    scheduler.ended(ended(B), at(3));
    assert!(!scheduler.slots.allow(3, false));
    assert!(scheduler.slots.allow(1, false));
}

#[test]
fn pausing_gives_back_what_had_not_begun_and_resuming_goes_on() {
    let mut scheduler = scheduler(512);
    scheduler.hand_over(vec![(leased(A, Share::Fresh), Permit::new(()))], at(0));
    scheduler.hint(A, Share::Retry, at(0), at(0));
    let paused = [(A, EndpointState::Paused), (B, EndpointState::Enabled)];
    scheduler.refresh(directory(2, &paused), at(0));
    assert_eq!(scheduler.take_given_up().len(), 1);
    assert!(scheduler.decide(true, at(0)).is_empty());
    assert_eq!((scheduler.claim(), scheduler.wake_at(true, at(0))), (None, None));
    scheduler.hand_over(vec![(leased(A, Share::Fresh), Permit::new(()))], at(0));
    assert_eq!(scheduler.take_given_up().len(), 1, "what was on its way as well");
    scheduler.refresh(directory(3, &[(A, EndpointState::Enabled)]), at(9));
    scheduler.decide(true, at(9));
    assert_eq!(scheduler.claim().expect("a claim").0[0].retry, 4);
}

#[test]
fn lanes_of_deleted_endpoints_are_forgotten() {
    let mut scheduler = scheduler(512);
    scheduler.hand_over(vec![(leased(A, Share::Fresh), Permit::new(()))], at(0));
    assert_eq!(scheduler.decide(true, at(0)).len(), 1);
    let deleted = directory(2, &[(A, EndpointState::Deleted)]);
    scheduler.refresh(Arc::clone(&deleted), at(0));
    assert_eq!(scheduler.lanes.len(), 1, "one is still under way");
    scheduler.ended(ended(A), at(1));
    scheduler.refresh(deleted, at(1));
    assert!(scheduler.lanes.is_empty());
}

#[test]
fn a_suspect_is_claimed_alone_and_holds_the_others() {
    let mut scheduler = scheduler(512);
    scheduler.hint(A, Share::Suspect, at(0), at(0));
    scheduler.decide(true, at(0));
    assert_eq!(scheduler.wake_at(true, at(0)), Some(at(1_000)));
    scheduler.hand_over(vec![(leased(B, Share::Fresh), Permit::new(()))], at(1_000));
    assert!(scheduler.decide(true, at(1_000)).is_empty(), "others wait");
    let (wanted, _) = scheduler.claim().expect("a claim");
    assert_eq!(wanted, [Wanted { endpoint: A, fresh: 0, retry: 0, suspect: 1, held: 0 }]);
    let suspect =
        scheduler.claimed(vec![leased(A, Share::Suspect)], vec![nothing_due(A)], at(1_001));
    assert_eq!(suspect.map(|starting| starting.delivery.share), Some(Share::Suspect));
    assert!(scheduler.decide(true, at(1_001)).is_empty());
    assert_eq!(scheduler.wake_at(true, at(1_001)), Some(at(1_101)));
    scheduler.ended(Ended { share: Share::Suspect, ..ended(A) }, at(1_002));
    assert_eq!(scheduler.decide(true, at(1_002)).len(), 1, "it has ended: on with the others");
}

#[test]
fn a_store_that_is_away_holds_nobody_for_a_suspect() {
    let mut scheduler = scheduler(512);
    scheduler.hint(A, Share::Suspect, at(0), at(0));
    scheduler.hand_over(vec![(leased(B, Share::Fresh), Permit::new(()))], at(1_000));
    assert!(scheduler.decide(true, at(1_000)).is_empty());
    scheduler.claim().expect("a claim");
    scheduler.claim_failed(at(1_001));
    assert_eq!(scheduler.decide(false, at(1_001)).len(), 1);
    assert_eq!(scheduler.wake_at(false, at(1_001)), None, "the engine's own pause wakes it");
}
