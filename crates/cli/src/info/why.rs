//! `fi_info --why`: what each provider answers, and why not more.

use crate::out;
use ripstop_core::hints::Request;
use ripstop_core::registry::{Answer, Registry};

/// Prints the answer of each provider.
pub(super) fn print(registry: &Registry, request: &Request<'_>) {
    for (provider, answer) in registry.ask(request) {
        out!("{}", text(&provider, &answer));
    }
}

/// How many interfaces match, and one line for each reason with the number of offers it holds
/// for.
fn text(provider: &str, answer: &Answer) -> String {
    let mut text = match answer.infos.len() {
        0 => format!("{provider}: does not match\n"),
        1 => format!("{provider}: 1 interface matches\n"),
        n => format!("{provider}: {n} interfaces match\n"),
    };
    for (reason, offers) in counted(answer) {
        let times = if offers == 1 {
            String::new()
        } else {
            format!("{offers} offers: ")
        };
        text += &format!("    {times}{reason}\n");
    }
    text
}

/// The reasons in order, equal ones once with their number.
pub(super) fn counted(answer: &Answer) -> Vec<(String, usize)> {
    let mut counted: Vec<(String, usize)> = Vec::new();
    for reason in answer.refusals.iter().map(ToString::to_string) {
        match counted.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => counted.push((reason, 1)),
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_core::registry::Refusal;

    #[test]
    fn equal_reasons_are_counted() {
        let answer = Answer {
            infos: Vec::new(),
            refusals: vec![Refusal::Filtered, Refusal::Filtered],
        };
        let text = text("tcp", &answer);
        assert!(
            text.starts_with("tcp: does not match\n    2 offers: the variable"),
            "{text}"
        );
    }
}
