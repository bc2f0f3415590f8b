//! The deaths of members of a [group](super::group).

use super::group::Group;

impl Group {
    /// Kills a member, and waits until the others have noticed it, and go on.
    pub(crate) fn kill(&mut self, victim: usize) {
        let mut member = self.members[victim].take().expect("a member that lives");
        member.child.kill().unwrap();
        member.child.wait().unwrap();
        self.dead(victim);
    }

    /// Waits until all have noticed that a member is dead.
    pub(crate) fn dead(&mut self, victim: usize) {
        let left = self.living();
        for own in &left {
            self.tell(*own, &format!("dead {victim}"));
        }
        for own in left {
            let took = self.hear(own, &format!("clean {victim}"));
            self.noticed.push(took.parse().unwrap());
        }
    }
}
