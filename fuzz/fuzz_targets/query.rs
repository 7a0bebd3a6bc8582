//! Query parameters of a list: whatever is accepted keeps the limits, and nothing falls over.

#![no_main]

use everhook_domain::tenant::TenantId;
use everhook_web::cursor::CursorScope;
use everhook_web::query::{LIMIT_MAX, Query};

libfuzzer_sys::fuzz_target!(|raw: &str| {
    let scope = CursorScope::new("events", &TenantId::default_tenant(), &[None]);
    let mut query = Query::parse(Some(raw), &["type", "from", "to", "limit", "cursor"]);
    let (from, to) = (query.time("from"), query.time("to"));
    if let Ok(page) = query.page(&scope) {
        assert!((1..=LIMIT_MAX).contains(&page.limit));
        assert_eq!(from.is_some(), query.text("from").is_some());
        assert_eq!(to.is_some(), query.text("to").is_some());
    }
});
