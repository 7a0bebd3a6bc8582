//! The authorities of an endpoint's own.

use std::time::Duration;

use everhook_domain::certificate::CaCertificates;
use everhook_domain::endpoint_url::EndpointUrl;
use everhook_engine::EngineSettings;

use crate::world::{World, answers};

const ONE: &str = include_str!("../../../everhook-domain/tests/data/authority.pem");
const OTHER: &str = include_str!("../../../everhook-domain/tests/data/other-authority.pem");

fn parse(pem: &str) -> CaCertificates {
    CaCertificates::parse(pem).expect("certificates")
}

#[tokio::test(start_paused = true)]
async fn changed_authorities_hold_for_every_attempt_that_starts_afterwards() {
    let world = World::new(EngineSettings::default()).await;
    let endpoint = world
        .endpoint_with("a", |settings| {
            settings.url = EndpointUrl::parse("https://a/", false).expect("a URL");
            settings.ca_certificates = Some(parse(ONE));
        })
        .await;
    world.network.set("a", answers(500, 1));
    world.publish("a").await;
    world.pass(Duration::from_secs(1)).await;
    world.update(endpoint, |settings| settings.ca_certificates = Some(parse(OTHER))).await;
    world.pass(Duration::from_secs(60)).await;
    world.update(endpoint, |settings| settings.ca_certificates = None).await;
    world.pass(Duration::from_secs(240)).await;
    let used: Vec<_> = world.network.log().into_iter().map(|sent| sent.ca_certificates).collect();
    assert_eq!(used, [Some(parse(ONE)), Some(parse(OTHER)), None]);
}
