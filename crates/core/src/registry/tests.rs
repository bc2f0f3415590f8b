use ripstop_types::{EpType, Flags};

use super::*;
use crate::attr::{EpAttr, FabricAttr};
use crate::hints::{Group, Mismatch, Original};
use crate::info::Hints;

struct Fake {
    name: &'static str,
    version: Version,
    caps: Flags,
}

impl Fake {
    fn offer(&self) -> Info {
        let mut info = Info {
            caps: self.caps,
            ..Info::default()
        };
        info.ep = EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        };
        info
    }
}

impl ProviderInfo for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> Version {
        self.version
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        Answer::collect([request.answer(&self.offer()).map(|info| vec![info])])
    }
}

fn fake(name: &'static str) -> Arc<Fake> {
    Arc::new(Fake {
        name,
        version: Version::new(1, 0),
        caps: Flags::MSG,
    })
}

/// A set of its own for each test.
fn set(only: Option<&str>) -> &'static Registry {
    Box::leak(Box::new(Registry::new(Filter::parse(only))))
}

fn any() -> Request<'static> {
    Request {
        version: Version::CURRENT,
        ..Request::default()
    }
}

fn names(infos: &[Info]) -> Vec<&str> {
    infos.iter().map(Info::prov_name).collect()
}

#[test]
fn providers_answer_in_order_of_preference() {
    let set = set(None);
    let _tcp = set.register(fake("tcp"));
    let _mine = set.register(fake("mine"));
    let shm = set.register(fake("shm"));
    let infos = set.getinfo(&any()).unwrap();
    assert_eq!(names(&infos), ["tcp", "shm", "mine"]);
    assert_eq!(infos[0].fabric.api_version, Version::CURRENT);
    assert_eq!(infos[0].fabric.prov_version, Version::new(1, 0).0);
    let list = Request {
        flags: Flags::PROV_ATTR_ONLY,
        ..any()
    };
    assert_eq!(names(&set.getinfo(&list).unwrap()), ["tcp", "shm", "mine"]);
    drop(shm);
    assert_eq!(names(&set.getinfo(&any()).unwrap()), ["tcp", "mine"]);
}

#[test]
fn dropping_a_registration_leaves_open_objects_alone() {
    let set = set(None);
    let provider = fake("tcp");
    let registration = set.register(provider.clone());
    let found = set.provider("TCP").unwrap();
    drop(registration);
    assert!(set.provider("tcp").is_none());
    assert_eq!(found.version(), Version::new(1, 0));
    drop(found);
    assert_eq!(Arc::strong_count(&provider), 1);
}

#[test]
fn the_variable_and_the_hints_select() {
    let only = set(Some("tcp"));
    let _a = only.register(fake("tcp"));
    let _b = only.register(fake("udp"));
    assert_eq!(names(&only.getinfo(&any()).unwrap()), ["tcp"]);
    let hints = Hints {
        fabric: Some(FabricAttr {
            prov_name: Some("udp".into()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    };
    let udp = Request {
        hints: Some(&hints),
        ..any()
    };
    let none = only.getinfo(&udp).unwrap_err();
    assert_eq!(none.errno, Errno::ENODATA);
    assert_eq!(none.refusals[0], ("udp".to_owned(), Refusal::Filtered));
    assert_eq!(none.refusals[1].1, Refusal::NotAsked("udp".to_owned()));

    let but = set(Some("^tcp"));
    let _a = but.register(fake("tcp"));
    let _b = but.register(fake("udp"));
    assert_eq!(names(&but.getinfo(&any()).unwrap()), ["udp"]);
}

#[test]
fn refusals_tell_why() {
    let set = set(None);
    let _tcp = set.register(fake("tcp"));
    let hints = Hints {
        caps: Flags::MSG | Flags::HMEM,
        ..Hints::default()
    };
    let none = set
        .getinfo(&Request {
            hints: Some(&hints),
            ..any()
        })
        .unwrap_err();
    let [(name, Refusal::Mismatch(why))] = none.refusals.as_slice() else {
        panic!("{none}")
    };
    assert_eq!(
        (name.as_str(), why.group, why.attribute),
        ("tcp", Group::Info, "caps")
    );
    assert!(
        none.to_string()
            .contains("tcp: hints->caps: asked FI_MSG|FI_HMEM"),
        "{none}"
    );
    let newer = Request {
        version: Version::new(99, 0),
        ..any()
    };
    assert_eq!(set.getinfo(&newer).unwrap_err().errno, Errno::ENOSYS);
}

#[test]
fn the_closest_refusals_are_told_once() {
    let why = |group, attribute| {
        Refusal::Mismatch(Mismatch {
            group,
            attribute,
            asked: String::new(),
            offered: String::new(),
            remedy: String::new(),
        })
    };
    let (of_type, of_caps) = (why(Group::Ep, "type"), why(Group::Info, "caps"));
    let closest = |refusals: &[&Refusal]| {
        let answer = Answer {
            refusals: refusals.iter().copied().cloned().collect(),
            ..Answer::default()
        };
        answer.closest().into_iter().cloned().collect::<Vec<_>>()
    };
    let told = closest(&[&of_type, &of_type, &of_caps, &of_caps]);
    assert_eq!(told, [of_caps]);
    assert_eq!(closest(&[&of_type, &of_type]), [of_type]);
}

#[test]
fn a_refusal_is_news_once() {
    let set = set(None);
    let failed = |text: usize| Refusal::Failed(Errno::EIO, text.to_string());
    assert!(set.is_news(&failed(0)));
    assert!(!set.is_news(&failed(0)));
    let news = (0..100).filter(|&text| set.is_news(&failed(text)));
    assert_eq!(news.count(), TOLD - 1);
}

#[test]
fn one_of_two_providers_of_a_name_counts() {
    let set = set(None);
    let of = |major| {
        Arc::new(Fake {
            name: "tcp",
            version: Version::new(major, 0),
            caps: Flags::MSG,
        })
    };
    let version = || Version(set.getinfo(&any()).unwrap()[0].fabric.prov_version).major();
    let _old = set.register(of(1));
    let newer = set.register(of(3));
    assert_eq!(version(), 3);
    let _later = set.register(of(2));
    assert_eq!(version(), 3);
    drop(newer);
    assert_eq!(version(), 2);
}

#[test]
fn what_the_path_prefers_counts_before_versions() {
    let set = set(None);
    let of = |major| {
        Arc::new(Fake {
            name: "tcp",
            version: Version::new(major, 0),
            caps: Flags::MSG,
        })
    };
    let version = || set.provider("tcp").map(|found| found.version().major());
    let _built_in = set.register(of(9));
    let found = set.register_as(of(1), Standing::Found);
    let _found_later = set.register_as(of(2), Standing::Found);
    assert_eq!(version(), Some(1));
    let preferred = set.register_as(of(3), Standing::Preferred);
    let _preferred_later = set.register_as(of(4), Standing::Preferred);
    assert_eq!(version(), Some(3));
    drop(preferred);
    assert_eq!(version(), Some(4));
    drop(found);
    assert_eq!(version(), Some(4));
}

#[test]
fn layers_ask_for_what_is_below_them() {
    let set = set(Some("tcp,shm"));
    let _kept: Vec<_> = ["tcp", "shm", "ofi_rxm", "udp"]
        .map(|name| set.register(fake(name)))
        .into();
    let ask = |name: Option<&str>, flags| {
        let hints = Hints {
            fabric: Some(FabricAttr {
                prov_name: name.map(str::to_owned),
                ..FabricAttr::default()
            }),
            ..Hints::default()
        };
        let request = Request {
            hints: Some(&hints),
            flags: Flags::from_bits_retain(flags),
            ..any()
        };
        let infos = set.getinfo(&request).unwrap_or_default();
        names(&infos).join(",")
    };
    let (below, hidden) = (1 << 59, 1 << 60);
    // What the variable keeps out is not layered upon either.
    assert_eq!(ask(None, below), "tcp");
    assert_eq!(ask(Some("shm"), below), "shm");
    assert_eq!(ask(None, hidden), "ofi_rxm,udp,tcp,shm");
    assert_eq!(ask(Some("tcp"), 0), "tcp");
    assert_eq!(ask(Some("tcp;ofi_rxm"), below), "");
}

#[test]
fn hints_that_are_not_read_are_for_providers_from_objects() {
    let set = set(None);
    let _tcp = set.register(fake("tcp"));
    let request = Request {
        original: Some(Original {
            hints: &"those of a program",
            is_read: false,
        }),
        ..any()
    };
    let none = set.getinfo(&request).unwrap_err();
    assert_eq!(none.refusals, [("tcp".to_owned(), Refusal::Unread)]);
}

/// A provider that is layered upon another one: built in under the whole name, or its topmost layer from
/// an object.
struct Layered(Arc<Fake>, Option<&'static Path>);

/// One that is built in under the whole name, and answers whoever asks.
struct Open(Arc<Fake>);

impl ProviderInfo for Open {
    fn name(&self) -> &str {
        self.0.name
    }

    fn version(&self) -> Version {
        self.0.version
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        self.0.getinfo(request)
    }
}

impl ProviderInfo for Layered {
    fn name(&self) -> &str {
        self.0.name
    }

    fn version(&self) -> Version {
        self.0.version
    }

    fn object(&self) -> Option<&Path> {
        self.1
    }

    fn is_by_name_only(&self) -> bool {
        self.1.is_none()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        self.0.getinfo(request)
    }
}

#[test]
fn who_answers_only_its_name_is_found_by_hints_or_the_variable() {
    let named = |name: &str| Hints {
        fabric: Some(FabricAttr {
            prov_name: Some(name.to_owned()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    };
    let with = |set: &'static Registry, hints: &Hints| {
        let request = Request {
            hints: Some(hints),
            ..any()
        };
        set.getinfo(&request)
    };
    let open = set(None);
    let _tcp = open.register(fake("tcp"));
    let _rxm = open.register(Arc::new(Layered(fake("tcp;ofi_rxm"), None)));
    assert_eq!(names(&open.getinfo(&any()).unwrap()), ["tcp"]);
    assert_eq!(names(&with(open, &named("tcp")).unwrap()), ["tcp"]);
    assert_eq!(
        names(&with(open, &named("TCP;OFI_RXM")).unwrap()),
        ["tcp;ofi_rxm"]
    );
    // Who names none does not hear of it.
    let hmem = Hints {
        caps: Flags::HMEM,
        ..Hints::default()
    };
    let none = with(open, &hmem).unwrap_err();
    assert!(
        none.refusals.iter().all(|(name, _)| name == "tcp"),
        "{none}"
    );

    // The layer of an object takes its place.
    let path = Path::new("/lib/librxm-fi.so");
    let _object = open.register(Arc::new(Layered(fake("ofi_rxm"), Some(path))));
    let infos = with(open, &named("tcp;ofi_rxm")).unwrap();
    assert_eq!(names(&infos), ["ofi_rxm"]);
    assert_eq!(open.provider("tcp;ofi_rxm").unwrap().object(), Some(path));

    let only = set(Some("tcp;ofi_rxm"));
    let _tcp = only.register(fake("tcp"));
    let _rxm = only.register(Arc::new(Layered(fake("tcp;ofi_rxm"), None)));
    assert_eq!(names(&only.getinfo(&any()).unwrap()), ["tcp;ofi_rxm"]);
}

#[test]
fn layers_that_are_built_in_answer_as_those_of_c() {
    let all = |filter| {
        let set = set(filter);
        let registered = [
            set.register(fake("verbs")),
            set.register(Arc::new(Open(fake("verbs;ofi_rxm")))),
            set.register(fake("tcp")),
        ];
        let found = set.getinfo(&any()).map(|infos| names(&infos).join(" "));
        (found.unwrap_or_default(), registered)
    };
    assert_eq!(all(None).0, "verbs verbs;ofi_rxm tcp");
    assert_eq!(all(Some("verbs")).0, "verbs verbs;ofi_rxm");
    assert_eq!(all(Some("^ofi_rxm")).0, "verbs tcp");
    assert_eq!(all(Some("^verbs")).0, "tcp");

    // The layer of an object takes its place, and does not see it below itself.
    let set = set(None);
    let _rxm = set.register(Arc::new(Open(fake("verbs;ofi_rxm"))));
    let path = Path::new("/lib/librxm-fi.so");
    let _object = set.register(Arc::new(Layered(fake("ofi_rxm"), Some(path))));
    assert_eq!(names(&set.getinfo(&any()).unwrap()), ["ofi_rxm"]);
}

#[test]
fn names_that_no_provider_has_are_found_also_among_layers() {
    let unknown = |filter| {
        let set = set(Some(filter));
        let _here = ["tcp", "tcp;ofi_rxm", "shm"].map(|name| set.register(fake(name)));
        set.unknown_names()
    };
    assert_eq!(unknown("tcp;ofi_rxm,SHM"), [""; 0]);
    assert_eq!(unknown("tcp,nix,shm;ofi_rxm"), ["nix", "ofi_rxm"]);
    assert_eq!(unknown("^nix"), ["nix"]);
}
