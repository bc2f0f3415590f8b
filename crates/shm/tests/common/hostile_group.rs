//! What unit tests with a hostile member need of a [group](super::group).

use super::group::Group;

impl Group {
    /// Marks a member as hostile: the others do not check what it sends.
    pub(crate) fn with_hostile(mut self, hostile: usize) -> Self {
        self.hostile = Some(hostile);
        self
    }

    /// Members that are started get this parameter.
    pub(crate) fn with_param(mut self, name: &str, value: u64) -> Self {
        self.params.push((name.to_owned(), value.to_string()));
        self
    }

    /// The most memory that a member has used at a time, in kilobytes.
    pub(crate) fn peak(&self, own: usize) -> u64 {
        let member = self.members[own].as_ref().expect("a member that lives");
        let path = format!("/proc/{}/status", member.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.expect("the kernel counts it");
        peak.trim().trim_end_matches(" kB").parse().unwrap()
    }
}
