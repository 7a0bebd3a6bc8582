//! What the store gives back, in case the file was damaged or another version wrote it: settings
//! of endpoints and sources, secrets, results of attempts, ids and times.

#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use everhook_domain::attempt::{AttemptError, KeptResponse};
use everhook_domain::endpoint::EndpointSettings;
use everhook_domain::id::{DeliveryId, EndpointId, EventId};
use everhook_domain::secret::SecretSet;
use everhook_domain::source::SourceSettings;
use everhook_domain::time::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let settings = EndpointSettings::from_stored(text);
    let again = EndpointSettings::from_stored(&settings.to_stored());
    assert_eq!(again.to_stored(), settings.to_stored());
    assert!(again.unusable.iter().eq(settings.unusable.iter()));
    if let Ok(secrets) = SecretSet::from_stored(text) {
        let again = SecretSet::from_stored(&secrets.to_stored());
        assert!(again.is_ok_and(|again| again.to_stored() == secrets.to_stored()));
    }
    if let Ok(settings) = SourceSettings::from_stored(text, r#"["AAAA"]"#) {
        let again = SourceSettings::from_stored(&settings.to_stored(), r#"["AAAA"]"#);
        assert_eq!(again, Ok(settings));
    }
    check_json::<AttemptError>(text);
    check_json::<KeptResponse>(text);
    check_id::<EventId>(text);
    check_id::<EndpointId>(text);
    check_id::<DeliveryId>(text);
    if let Ok(at) = Timestamp::parse(text) {
        assert_eq!(Timestamp::parse(&at.to_string()), Ok(at));
    }
});

fn check_json<T: Serialize + DeserializeOwned>(text: &str) {
    if let Ok(value) = serde_json::from_str::<T>(text) {
        let written = serde_json::to_string(&value).expect("what was read can be written");
        let again: T = serde_json::from_str(&written).expect("what was written can be read");
        assert_eq!(serde_json::to_string(&again).ok(), Some(written));
    }
}

fn check_id<T: FromStr + Display>(text: &str) {
    if let Ok(id) = text.parse::<T>() {
        assert_eq!(id.to_string(), text);
    }
}
