//! List cursors: whatever is accepted is exactly what we would have given.

#![no_main]

use everhook_domain::tenant::TenantId;
use everhook_web::cursor::CursorScope;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let scope = CursorScope::new("deliveries", &TenantId::default_tenant(), &[None, Some("dead")]);
    if let Ok(position) = scope.decode(text) {
        assert_eq!(scope.encode(position), text);
    }
});
