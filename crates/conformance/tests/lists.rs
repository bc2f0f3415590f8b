//! The committed lists name cases that exist, and what the hook `debug` says is held against its list.

use std::collections::BTreeSet;
use std::fs;

use ripstop_conformance::case::id;
use ripstop_conformance::cases;
use ripstop_conformance::lists::{folder, parse};
use ripstop_conformance::mistakes::{Mistakes, OPEN, said};
use ripstop_conformance::pattern::matches;
use ripstop_types::EpType;
use serde::Deserialize;

/// Every id there is.
fn ids() -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    for case in cases::all() {
        for ep_type in [EpType::Rdm, EpType::Msg, EpType::Dgram] {
            if case.eps.includes(ep_type) {
                assert!(ids.insert(id(ep_type, case.name)), "{} twice", case.name);
            }
        }
    }
    ids
}

/// What each entry of a list has: the rest of it is read by the suite.
#[derive(Deserialize)]
struct Entry {
    cases: Vec<String>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    says: Vec<String>,
}

/// The entries of a list, under their name; each pattern in them is of a case.
fn entries(text: &str, name: &str) -> Vec<Entry> {
    let mut list: toml::Table = toml::from_str(text).unwrap();
    let entries: Vec<Entry> = list.remove(name).unwrap().try_into().unwrap();
    assert!(!entries.is_empty() && list.is_empty());
    let ids = ids();
    for pattern in entries.iter().flat_map(|entry| &entry.cases) {
        let one = std::slice::from_ref(pattern);
        assert!(ids.iter().any(|id| matches(one, id)), "no case {pattern}");
    }
    entries
}

#[test]
fn required_cases_exist() {
    let ids = ids();
    let files = fs::read_dir(folder()).unwrap();
    for file in files {
        let path = file.unwrap().path();
        for id in parse(&fs::read_to_string(&path).unwrap()) {
            assert!(ids.contains(&id), "{}: no case {id}", path.display());
        }
    }
}

#[test]
fn differences_name_cases() {
    for entry in entries(include_str!("../differences.toml"), "difference") {
        assert!(entry.why.len() > 20, "{:?} says too little", entry.cases);
    }
}

#[test]
fn inapplicable_cases_exist() {
    for entry in entries(include_str!("../inapplicable.toml"), "inapplicable") {
        assert!(entry.why.len() > 10, "{:?} says too little", entry.cases);
    }
}

#[test]
fn names_are_page_and_rule() {
    for case in cases::all() {
        let (page, rule) = case.name.split_once('/').expect("page/rule");
        assert!(page.starts_with("fi_"), "{}", case.name);
        assert!(!rule.is_empty() && !case.rule.is_empty(), "{}", case.name);
    }
}

#[test]
fn mistakes_are_of_cases() {
    Mistakes::load().unwrap();
    for entry in entries(include_str!("../mistakes.toml"), "mistake") {
        assert!(!entry.says.is_empty(), "{:?} says nothing", entry.cases);
    }
}

#[test]
fn what_is_said_is_what_is_expected() {
    let text = r#"
        [[mistake]]
        cases = ["rdm:fi_cq/busy"]
        says = ["fi_close of completion queue"]
    "#;
    let list: Mistakes = toml::from_str(text).unwrap();
    let written = "libfabric:7:tcp:cq:<warn> FI_HOOK=debug: fi_close of completion queue 3 (0x10): it is refused\nmore\n";
    let said = said(written);
    assert_eq!(
        said,
        ["fi_close of completion queue 3 (0x10): it is refused"]
    );
    assert_eq!(list.misjudged("rdm:fi_cq/busy", &said, 0), None);
    let other = list.misjudged("rdm:fi_cq/size", &said, 0).unwrap();
    assert!(other.starts_with("FI_HOOK=debug says: fi_close"), "{other}");
    let silent = list.misjudged("rdm:fi_cq/busy", &[], 0).unwrap();
    assert!(silent.contains("does not say"), "{silent}");
}

#[test]
fn what_is_open_at_the_end_is_counted() {
    let list: Mistakes = toml::from_str("mistake = []").unwrap();
    let line = |names| vec![format!("{OPEN}{names}; close what was opened last first")];
    let two = line("fabric 1 (0x10), domain 2 (0x20)");
    assert_eq!(list.misjudged("rdm:fi_cq/size", &two, 2), None);
    assert!(list.misjudged("rdm:fi_cq/size", &two, 1).is_some());
    assert!(list.misjudged("rdm:fi_cq/size", &[], 1).is_some());
    let many = line("fabric 1 (0x10), domain 2 (0x20) and 7 more");
    assert_eq!(list.misjudged("rdm:fi_cq/size", &many, 9), None);
}
