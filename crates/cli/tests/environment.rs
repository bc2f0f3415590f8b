//! `docs/environment.md` says what the library reads.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::thread::no_new_privs;

/// What `fi_info` prints with these options where no variable is set.
fn fi_info(options: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fi_info"));
    let out = command.args(options).env_clear().output();
    let out = out.expect("fi_info starts");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn the_document_is_the_table_of_the_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/environment.md");
    let written = fs::read_to_string(&path).expect("docs/environment.md");
    assert!(
        fi_info(&["-e", "--markdown"]) == written,
        "docs/environment.md is stale; write it anew: cargo run --bin fi_info -- -e --markdown > \
         docs/environment.md"
    );
}

#[test]
fn a_name_that_no_variable_has_is_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fi_info"));
    let out = command.args(["-g", "TCP_NOPE"]).output();
    let out = out.expect("fi_info starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("no variable has TCP_NOPE"), "{said}");
    assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0));
}

/// Why a set-user-ID program in this folder would be one like any other, if so.
fn set_user_id_is_ignored(folder: &Path) -> Option<&'static str> {
    let is_on_such_a_mount = || {
        let flags = statvfs(folder).expect("a file system").f_flag;
        flags.contains(StatVfsMountFlags::NOSUID)
    };
    match no_new_privs() {
        Ok(true) => Some("processes here gain no rights (no_new_privs)"),
        _ if is_on_such_a_mount() => Some("the target folder is mounted with nosuid"),
        _ => None,
    }
}

#[test]
fn a_set_user_id_program_writes_no_file_that_its_caller_names() {
    const NOBODY: u32 = 65534;
    const NAMING_FILES: [(&str, &str); 3] = [
        ("FI_LOG_LOCATION", "log"),
        ("FI_TRACE_FILE", "trace"),
        ("XDG_RUNTIME_DIR", ""),
    ];
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    let program = folder.join("fi_info");
    // By another process: what other tests start has no descriptor of the copy, which could not be run while it is written.
    let copied = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_fi_info").as_ref(), program.as_os_str()])
        .status();
    assert!(copied.expect("cp").success());
    let prepared = chown(&program, Some(NOBODY), None)
        .and_then(|()| chown(folder, Some(NOBODY), None))
        .and_then(|()| fs::set_permissions(&program, Permissions::from_mode(0o4755)));
    if let Err(why) = prepared {
        println!("SKIP: a file cannot be given to another user: {why}");
        return;
    }
    if let Some(why) = set_user_id_is_ignored(folder) {
        println!("SKIP: {why}");
        return;
    }
    let mut command = Command::new(&program);
    command.args(["-p", "shm"]).env_clear();
    command.envs([("FI_HOOK", "trace"), ("FI_LOG_LEVEL", "info")]);
    command.envs(NAMING_FILES.map(|(name, file)| (name, folder.join(file))));
    let out = command.output().expect("fi_info starts");
    assert!(out.status.success(), "{out:?}");
    // The log goes to where the level, which is no danger, lets it.
    let said = String::from_utf8_lossy(&out.stderr);
    for name in ["FI_HOOK", "FI_LOG_LOCATION", "FI_TRACE_FILE"] {
        let ignored = |line: &str| line.contains(name) && line.contains("has no effect");
        assert!(said.lines().any(ignored), "{name}: {said}");
    }
    let files = fs::read_dir(folder).expect("the folder");
    let names: Vec<_> = files
        .map(|file| file.expect("a file").file_name())
        .collect();
    assert_eq!(names, ["fi_info"]);
}

/// Variables of C libfabric 2.6.0: of its core, of tcp, of shm, of verbs and of ofi_rxm.
const OF_C: [(&str, &[&str]); 5] = [
    (
        "FI_",
        &[
            "PREFER_SYSCONFIG",
            "LOG_INTERVAL",
            "LOG_LEVEL",
            "LOG_PROV",
            "LOG_SUBSYS",
            "LOG_LOCATION",
            "LOG_LOCATION_MODE",
            "PERF_CNTR",
            "HOOK",
            "HMEM",
            "HMEM_DISABLE_P2P",
            "MR_CACHE_MAX_SIZE",
            "MR_CACHE_MAX_COUNT",
            "MR_CACHE_MONITOR",
            "MR_CUDA_CACHE_MONITOR_ENABLED",
            "MR_ROCR_CACHE_MONITOR_ENABLED",
            "MR_ZE_CACHE_MONITOR_ENABLED",
            "PROVIDER",
            "FORK_UNSAFE",
            "UNIVERSE_SIZE",
            "AV_REMOVE_CLEANUP",
            "OFFLOAD_COLL_PROVIDER",
            "PROVIDER_PATH",
        ],
    ),
    (
        "FI_TCP_",
        &[
            "PROV_NAME",
            "IFACE",
            "PORT_LOW_RANGE",
            "PORT_HIGH_RANGE",
            "TX_SIZE",
            "RX_SIZE",
            "MAX_INJECT",
            "MAX_SAVED",
            "MAX_SAVED_SIZE",
            "MAX_RX_SIZE",
            "NODELAY",
            "STAGING_SBUF_SIZE",
            "PREFETCH_RBUF_SIZE",
            "ZEROCOPY_SIZE",
            "TRACE_MSG",
            "DISABLE_AUTO_PROGRESS",
            "IO_URING",
            "FIREWALL_ADDR",
        ],
    ),
    (
        "FI_SHM_",
        &[
            "TX_SIZE",
            "RX_SIZE",
            "DISABLE_CMA",
            "USE_DSA_SAR",
            "MAX_GDRCOPY_SIZE",
            "USE_XPMEM",
            "BUFFER_THRESHOLD",
        ],
    ),
    (
        "FI_VERBS_",
        &[
            "TX_SIZE",
            "RX_SIZE",
            "TX_IOV_LIMIT",
            "RX_IOV_LIMIT",
            "INLINE_SIZE",
            "MIN_RNR_TIMER",
            "USE_ODP",
            "PREFER_XRC",
            "XRCD_FILENAME",
            "CQREAD_BUNCH_SIZE",
            "GID_IDX",
            "DEVICE_NAME",
            "USE_DMABUF",
            "IFACE",
            "DGRAM_USE_NAME_SERVER",
            "DGRAM_NAME_SERVER_PORT",
            "NIC_AFFINITY_POLICY",
            "AFFINITY_DEVICE",
            "NIC_AFFINITY_CONFIG",
        ],
    ),
    (
        "FI_OFI_RXM_",
        &[
            "BUFFER_SIZE",
            "COMP_PER_PROGRESS",
            "SAR_LIMIT",
            "USE_SRX",
            "TX_SIZE",
            "RX_SIZE",
            "MSG_TX_SIZE",
            "MSG_RX_SIZE",
            "CM_PROGRESS_INTERVAL",
            "CQ_EQ_FAIRNESS",
            "DATA_AUTO_PROGRESS",
            "DEF_WAIT_OBJ",
            "DEF_TCP_WAIT_OBJ",
            "USE_RNDV_WRITE",
            "ENABLE_DIRECT_SEND",
            "ENABLE_DYN_RBUF",
            "ENABLE_PASSTHRU",
            "DETECT_HMEM_IFACE",
            "RESCAN",
        ],
    ),
];

#[test]
fn every_variable_of_c_is_read_or_said_to_have_no_effect() {
    let listed = fi_info(&["-e"]);
    for (prefix, names) in OF_C {
        for name in names {
            let line = format!("# {prefix}{name}: ");
            assert!(listed.contains(&line), "fi_info -e lacks {prefix}{name}");
        }
    }
}

/// Names of variables that stand in backquotes at the begin of a row, below a heading of `docs/environment.md`.
fn of_provider(document: &str, provider: &str) -> BTreeSet<String> {
    let heading = format!("\n## Provider {provider}\n");
    let (_, part) = document.split_once(&heading).expect("the provider");
    let rows = part.split("\n## ").next().unwrap_or(part).lines();
    rows.filter_map(|row| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect()
}

/// Names that a man page says something about: `.It Ev NAME`.
fn of_page(name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../man/man7")
        .join(name);
    let page = fs::read_to_string(path).expect("the page");
    let items = page.lines().filter_map(|line| line.strip_prefix(".It Ev "));
    items.map(str::to_owned).collect()
}

/// A program that sets what C's `ofi_rxm` has no variable for sets nothing of this library.
#[test]
fn the_prefix_of_ofi_rxm_has_what_c_has() {
    let document = fi_info(&["-e", "--markdown"]);
    let (_, of_c) = OF_C[4];
    for name in of_provider(&document, "ofi_rxm") {
        let rest = name.strip_prefix("FI_OFI_RXM_").expect("the prefix");
        assert!(of_c.contains(&rest), "C has no {name}");
    }
}

#[test]
fn man_pages_have_the_variables_that_c_lacks() {
    let document = fi_info(&["-e", "--markdown"]);
    let is_of_c = |name: &String| {
        let of_c = |(prefix, names): &(&str, &[&str])| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| names.contains(&rest))
        };
        OF_C.iter().any(of_c)
    };
    for provider in ["tcp", "shm", "lnx"] {
        let mut ours = of_provider(&document, provider);
        ours.retain(|name| !is_of_c(name));
        let page = of_page(&format!("fi_ripstop_{provider}.7"));
        assert_eq!(
            ours, page,
            "variables of {provider} (left) and of its page (right)"
        );
    }
    for name in of_page("ripstop.7") {
        assert!(
            document.contains(&format!("\n| `{name}` |")),
            "{name} is not read"
        );
    }
}
