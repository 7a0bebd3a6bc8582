//! Our own deaths: what was under way goes out again, with the same number.

use std::time::Duration;

use everhook_domain::delivery::State;
use everhook_engine::EngineSettings;

use crate::world::{Sent, World, answers};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_crash_repeats_what_was_on_the_wire_and_nothing_else() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("done").await;
    world.endpoint("hangs").await;
    world.network.set("hangs", answers(200, 5_000));
    let done = world.publish_all("done", 10).await;
    let hangs = world.publish_all("hangs", 300).await;
    world.pass(SECOND).await;
    let on_the_wire = world.network.to("hangs").len();
    assert_eq!(on_the_wire, 64);
    world.crash().await;
    world.pass(100 * SECOND).await;
    for event in done.into_iter().chain(hangs) {
        assert_eq!(world.state(event).await, State::Delivered);
        assert_eq!(world.attempts(event).await.len(), 1, "an interruption is no attempt");
    }
    assert_eq!(world.network.to("done").len(), 10);
    assert_eq!(world.network.to("hangs").len(), 300 + on_the_wire);
    assert!(world.network.log().iter().all(|sent| sent.number() == 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_came_due_while_we_were_down_goes_once_and_the_gaps_stay() {
    let mut world = World::new(EngineSettings::default()).await;
    world.endpoint("a").await;
    world.network.set("a", answers(500, 1));
    world.publish("a").await;
    world.pass(SECOND).await;
    world.stop().await;
    world.pass(3_600 * SECOND).await;
    world.crash().await;
    world.pass(SECOND).await;
    assert_eq!(world.network.log().len(), 2, "one attempt, not one for each step that passed");
    world.pass(400_000 * SECOND).await;
    let log = world.network.log();
    let gaps: Vec<_> = log.windows(2).map(|pair| (pair[1].at - pair[0].at).as_secs()).collect();
    assert_eq!(gaps[1..], [240, 1_500, 5_400, 14_400, 64_800]);
    assert_eq!(log.iter().map(Sent::number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}
