//! The machine in words.

/// The processor, how many there are, and the kernel.
pub(crate) fn describe() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = info.lines().filter(|line| line.starts_with(name));
        let line = lines.next().and_then(|line| line.split_once(": "));
        line.map(|(_, value)| value.to_owned())
    };
    let model = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    let (family, number) = (field("cpu family"), field("model\t"));
    let number = family
        .zip(number)
        .map_or_else(String::new, |(family, number)| {
            format!(" (family {family}, model {number})")
        });
    let count = info.lines().filter(|line| line.starts_with("processor"));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}{number}, {} cores, Linux {}",
        count.count(),
        kernel.trim()
    )
}

/// The processor's name, family and model as part of a file's: virtual machines often have one name for several.
pub(crate) fn slug(machine: &str) -> String {
    let name = machine.replace("(R)", "").replace("(TM)", "");
    let name = match name.split_once("), ") {
        Some((processor, _)) => processor,
        None => name.split(',').next().unwrap_or_default(),
    };
    let letters = name.chars();
    let letters: String = letters
        .map(|c| if c.is_ascii_alphanumeric() { c } else { ' ' })
        .collect();
    let words = letters.split_whitespace().collect::<Vec<_>>();
    words.join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_part_of_a_name() {
        let name = slug("AMD EPYC(R) 7 (family 25, model 1), 2 cores, Linux 6.1");
        assert_eq!(name, "amd-epyc-7-family-25-model-1");
        assert_eq!(slug("AMD EPYC(R) 7, 2 cores"), "amd-epyc-7");
        assert!(describe().contains(" cores, Linux "));
    }
}
