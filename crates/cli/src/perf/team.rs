//! The processes of a group, seen from the one that starts them.

use anyhow::{Result, bail};

use super::pair::{Crew, Process, Role, Start};
use super::protocol::{Answer, Order, Test};
use super::subject::Lacks;

/// Processes of one subject that are in one group.
pub(super) struct Team {
    first: Process,
    others: Vec<Process>,
}

impl Team {
    /// Starts all, and waits until they have joined.
    ///
    /// # Errors
    /// What any of them says.
    pub(super) fn start(start: &Start<'_>, ranks: usize) -> Result<Self> {
        let first = Process::start(start, Role::Rank(0))?;
        let others = (1..ranks).map(|rank| Process::start(start, Role::Rank(rank)));
        let others = others.collect::<Result<_>>()?;
        let mut team = Self { first, others };
        let addresses = team.all().map(|member| member.address.clone()).collect();
        for answer in team.answers(&Order::Join(addresses))? {
            let Answer::Introduced = answer else {
                bail!("unexpected {answer:?}");
            };
        }
        Ok(team)
    }

    /// By rank.
    fn all(&mut self) -> impl Iterator<Item = &mut Process> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }

    /// Gives an order to all and waits for their answers.
    fn answers(&mut self, order: &Order) -> Result<Vec<Answer>> {
        for member in self.all() {
            member.order(order)?;
        }
        let answers: Result<Vec<Answer>> = self.all().map(Process::answer).collect();
        // Whoever failed first knows why; the others only wait in vain.
        answers.map_err(|error| {
            if error.is::<Lacks>() {
                return error;
            }
            let others = self.all().filter_map(Process::last_words);
            others.fold(error, |error, words| error.context(words))
        })
    }
}

impl Crew for Team {
    fn one(&self) -> &Process {
        &self.first
    }

    /// That of the member that took longest.
    fn take(&mut self, test: Test) -> Result<u64> {
        let mut longest = 0;
        for answer in self.answers(&Order::Run(test))? {
            let Answer::Took { nanos } = answer else {
                bail!("unexpected {answer:?}");
            };
            longest = longest.max(nanos);
        }
        Ok(longest)
    }
}
