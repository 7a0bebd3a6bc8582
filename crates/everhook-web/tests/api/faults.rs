//! The named steps of accepting, and what failing there means.

use everhook_domain::fault::{Fate, Step, install_for_thread};
use http::StatusCode;

use crate::harness::Api;

const EVENT: &str = r#"{"type":"a","data":1}"#;

/// Publishes with a failure at this step; how many events are stored then.
async fn check(failing: Step, path: &str, body: &str) -> usize {
    let api = Api::new();
    let hook = move |step| if step == failing { Fate::Fail } else { Fate::Go };
    install_for_thread(Some((None, Box::new(hook))));
    let refused = api.post_keyed(path, "k", body).await;
    install_for_thread(None);
    assert_eq!(
        (refused.status, refused.slug().as_str()),
        (503, "store-unavailable"),
        "{failing:?}"
    );
    assert_eq!(refused.header("retry-after"), Some("5"));
    let stored = api.list("/api/v1/events").await.len();
    let again = api.post_keyed(path, "k", body).await;
    again.expect(StatusCode::ACCEPTED);
    let replayed = again.header("idempotency-replayed").is_some();
    assert_eq!(replayed, stored > 0, "the retry with the key runs once in either case");
    assert_eq!(api.list("/api/v1/events").await.len(), 1);
    stored
}

#[tokio::test]
async fn acceptance_14_a_failure_before_the_store_stores_nothing_and_one_after_it_loses_nothing() {
    let batch = format!("{{\"events\":[{EVENT}]}}");
    for (path, body) in [("/api/v1/events", EVENT), ("/api/v1/events/batch", batch.as_str())] {
        assert_eq!(check(Step::AcceptParsed, path, body).await, 0);
        assert_eq!(check(Step::CommitBefore, path, body).await, 0);
        assert_eq!(check(Step::AnswerBefore, path, body).await, 1);
    }
}

#[tokio::test]
async fn a_webhook_whose_answer_is_lost_is_a_duplicate_when_it_comes_again() {
    for (failing, receipts) in
        [(Step::AcceptParsed, 0), (Step::CommitBefore, 0), (Step::AnswerBefore, 1)]
    {
        let api = Api::new();
        let source = api.stripe("shop", serde_json::json!({})).await;
        let hook = move |step| if step == failing { Fate::Fail } else { Fate::Go };
        install_for_thread(Some((None, Box::new(hook))));
        let refused = api.signed(&source, b"{\"id\":\"evt_1\"}").await;
        install_for_thread(None);
        assert_eq!((refused.status, refused.slug().as_str()), (503, "store-unavailable"));
        assert!(refused.header("retry-after").is_some());
        assert_eq!(api.list("/api/v1/receipts").await.len(), receipts, "{failing:?}");
        let again = api.signed(&source, b"{\"id\":\"evt_1\"}").await.expect(StatusCode::OK);
        let expected = if receipts == 0 { "accepted" } else { "duplicate" };
        assert_eq!(again["status"], expected, "{failing:?}");
    }
}
