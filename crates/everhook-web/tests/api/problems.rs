//! Slugs, statuses and titles are part of the contract.

use everhook_web::problem::ProblemKind;

#[test]
fn kinds_are_as_in_the_golden_file() {
    let found: String = ProblemKind::ALL
        .iter()
        .map(|kind| format!("{} {} | {}\n", kind.status().as_u16(), kind.slug(), kind.title()))
        .collect();
    let golden = include_str!("problems.txt");
    assert_eq!(found, golden, "if this is meant, change tests/api/problems.txt and tell users");
}
