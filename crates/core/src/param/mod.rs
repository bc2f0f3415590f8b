//! Run-time parameters: environment variables `FI_<NAME>` of the core and
//! `FI_<PROVIDER>_<NAME>` of a provider, and the file `libfabric.conf`
//! (man page `fi_provider(3)`, section "fi_param").
//!
//! A parameter is declared with its type, its default and a help text, and can then be
//! listed (`fi_getparams`, `fi_info -e`) and read. Reads look at the environment each time.
//! A value that makes no sense is logged and does not count; of a number out of bounds the nearest bound does.

mod parse;
mod source;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use parking_lot::RwLock;
use ripstop_types::Errno;

use crate::log::Subsys;
use source::Source;

/// The core's name in log lines.
const CORE: &str = "core";

/// Type of a parameter (`enum fi_param_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ParamType {
    /// Text.
    String = 0,
    /// A number that fits a C `int`: decimal, `0x` hexadecimal or `0` octal.
    Int = 1,
    /// `0`, `false`, `no`, `off` or `1`, `true`, `yes`, `on`, in any case.
    Bool = 2,
    /// A number that fits a C `size_t`; `-1` is the largest.
    Size = 3,
}

/// A parameter as it is listed (`struct fi_param`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The environment variable.
    pub name: String,
    /// The provider that reads it, `None` for the core.
    pub provider: Option<String>,
    /// What it holds.
    pub kind: ParamType,
    /// What it is for, after the provider's name.
    pub help: String,
    /// Its value in the environment, if it is set there.
    pub value: Option<String>,
    /// Whether it is one of C libfabric that does nothing here; the help says why.
    pub is_unused: bool,
}

/// A parameter of C libfabric that has no effect here. It is declared all the same, so that a list of
/// parameters tells those who set it.
#[derive(Clone, Copy, Debug)]
pub struct Unused {
    /// Its name, without `FI_` and the provider.
    pub name: &'static str,
    /// What C takes.
    pub kind: ParamType,
    /// Why it has no effect.
    pub why: &'static str,
}

impl Unused {
    /// One entry of a table of them.
    pub const fn new(name: &'static str, kind: ParamType, why: &'static str) -> Self {
        Self { name, kind, why }
    }
}

struct Entry {
    /// `None` for the core.
    provider: Option<String>,
    name: String,
    variable: String,
    kind: ParamType,
    help: String,
    is_unused: bool,
}

impl Entry {
    fn is(&self, provider: Option<&str>, name: &str) -> bool {
        self.provider.as_deref() == provider && self.name == name
    }
}

/// A set of parameters and where their values come from.
pub struct Params {
    entries: RwLock<Vec<Entry>>,
    source: Source,
}

impl core::fmt::Debug for Params {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

/// Tells the log what a privileged program does not take from its caller. Called once.
pub(crate) fn log_ignored() {
    for (variable, value) in source::ignored() {
        crate::fi_warn!(
            CORE,
            Subsys::Core,
            "{variable}={value} has no effect: this program has rights that its caller has not \
             (set-user-ID, set-group-ID or capabilities); {} may set it",
            source::FILE
        );
    }
}

/// The parameters, also while those of the core are being read.
pub(crate) fn table() -> &'static Params {
    static PARAMS: LazyLock<Params> = LazyLock::new(|| Params::new(Source::load()));
    &PARAMS
}

impl Params {
    fn new(source: Source) -> Self {
        let params = Self {
            entries: RwLock::default(),
            source,
        };
        params.define(
            None,
            source::PREFER_FILE,
            ParamType::Bool,
            "Prefer the values of libfabric.conf over those of the environment (default: false)",
        );
        params
    }

    /// Declares a parameter, of the core without a provider. Declaring it again replaces type
    /// and help.
    pub fn define(&self, provider: Option<&str>, name: &str, kind: ParamType, help: &str) {
        self.enter(Entry {
            provider: provider.map(str::to_owned),
            name: name.to_owned(),
            variable: variable(provider, name),
            kind,
            help: provider.map_or_else(|| help.to_owned(), |p| format!("{p}: {help}")),
            is_unused: false,
        });
    }

    /// Declares what C libfabric reads under this provider's name, the core's without one, and this
    /// library has no use for. Those that are set are logged.
    pub fn define_unused(&self, provider: Option<&str>, all: &[Unused]) {
        for &Unused { name, kind, why } in all {
            let variable = variable(provider, name);
            if let Some(value) = self.source.value(&variable) {
                crate::fi_info!(
                    provider.unwrap_or(CORE),
                    Subsys::Core,
                    "{variable}={value} has no effect: {why}"
                );
            }
            let prefix = provider.map_or_else(String::new, |provider| format!("{provider}: "));
            self.enter(Entry {
                provider: provider.map(str::to_owned),
                name: name.to_owned(),
                variable,
                kind,
                help: format!("{prefix}no effect: {why}"),
                is_unused: true,
            });
        }
    }

    fn enter(&self, entry: Entry) {
        let (provider, name) = (entry.provider.as_deref(), &*entry.name);
        let mut entries = self.entries.write();
        match entries.iter_mut().find(|e| e.is(provider, name)) {
            Some(known) => *known = entry,
            None => entries.push(entry),
        }
    }

    /// Withdraws all parameters of a provider, when it leaves.
    pub fn undefine(&self, provider: &str) {
        let mut entries = self.entries.write();
        entries.retain(|entry| entry.provider.as_deref() != Some(provider));
    }

    /// All parameters in the order of their declaration.
    #[must_use]
    pub fn list(&self) -> Vec<Param> {
        let entries = self.entries.read();
        let listed = entries.iter().map(|entry| Param {
            name: entry.variable.clone(),
            provider: entry.provider.clone(),
            kind: entry.kind,
            help: entry.help.clone(),
            value: self.source.environment(&entry.variable),
            is_unused: entry.is_unused,
        });
        listed.collect()
    }

    /// The text of a declared parameter, unparsed.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when it is not declared, [`Errno::ENODATA`] when it is not set.
    pub fn raw(&self, provider: Option<&str>, name: &str) -> Result<(ParamType, String), Errno> {
        let (kind, variable) = {
            let entries = self.entries.read();
            let entry = entries
                .iter()
                .find(|e| e.is(provider, name))
                .ok_or(Errno::ENOENT)?;
            (entry.kind, entry.variable.clone())
        };
        let value = self.source.value(&variable);
        let shown = value.as_deref().unwrap_or("<not set>");
        crate::fi_info!(
            provider.unwrap_or(CORE),
            Subsys::Core,
            "variable {variable}={shown}"
        );
        value.map(|value| (kind, value)).ok_or(Errno::ENODATA)
    }

    /// The value of a declared parameter of the type `T`.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when it is not declared, [`Errno::ENODATA`] when it is not set,
    /// [`Errno::EINVAL`] when the text makes no sense or the type is another.
    pub fn get<T: Value>(&self, provider: Option<&str>, name: &str) -> Result<T, Errno> {
        let (value, _) = self.value_and_text(provider, name)?;
        Ok(value)
    }

    fn value_and_text<T: Value>(
        &self,
        provider: Option<&str>,
        name: &str,
    ) -> Result<(T, String), Errno> {
        let (kind, text) = self.raw(provider, name)?;
        if kind != T::KIND {
            return Err(Errno::EINVAL);
        }
        match T::parse(&text) {
            Ok(value) => Ok((value, text)),
            Err(expected) => {
                let variable = variable(provider, name);
                crate::fi_warn!(
                    provider.unwrap_or(CORE),
                    Subsys::Core,
                    "{variable}={text} is ignored: set it to {expected}"
                );
                Err(Errno::EINVAL)
            }
        }
    }

    /// Declares a number and reads it. One out of bounds is the nearest bound, and logged; `-1` asks for the largest there
    /// can be. The default need not be within the bounds.
    pub fn declare_bounded<T: Value + Copy + Ord + Display>(
        &self,
        provider: Option<&str>,
        name: &str,
        default: T,
        bounds: &RangeInclusive<T>,
        help: &str,
    ) -> T {
        self.define(provider, name, T::KIND, help);
        let Ok((value, text)) = self.value_and_text::<T>(provider, name) else {
            return default;
        };
        let used = value.clamp(*bounds.start(), *bounds.end());
        let (is_above, is_largest) = (value > used, text.trim() == "-1");
        if used != value && !(is_above && is_largest) {
            let (variable, bound) = (variable(provider, name), ["least", "most"]);
            crate::fi_warn!(
                provider.unwrap_or(CORE),
                Subsys::Core,
                "{variable}={text} is out of range, and {used} is used: set it to {used} at {}",
                bound[usize::from(is_above)]
            );
        }
        used
    }

    /// Declares a parameter and reads it: its value, or `default` when it is not set or makes
    /// no sense. The help text should say what the default is.
    pub fn declare<T: Value>(
        &self,
        provider: Option<&str>,
        name: &str,
        default: T,
        help: &str,
    ) -> T {
        self.define(provider, name, T::KIND, help);
        self.get(provider, name).unwrap_or(default)
    }

    /// Declares a parameter without a default and reads it.
    pub fn declare_optional<T: Value>(
        &self,
        provider: Option<&str>,
        name: &str,
        help: &str,
    ) -> Option<T> {
        self.define(provider, name, T::KIND, help);
        self.get(provider, name).ok()
    }
}

/// A type of parameter.
pub trait Value: Sized {
    /// Its C type.
    const KIND: ParamType;

    /// Reads a value from its text.
    ///
    /// # Errors
    /// What would have been accepted.
    fn parse(text: &str) -> Result<Self, &'static str>;
}

macro_rules! values {
    ($($type:ty, $kind:ident, $parse:expr, $expected:literal;)*) => { $(
        impl Value for $type {
            const KIND: ParamType = ParamType::$kind;

            fn parse(text: &str) -> Result<Self, &'static str> {
                $parse(text).ok_or($expected)
            }
        }
    )* };
}

values! {
    String, String, |text: &str| Some(text.to_owned()), "text";
    i32, Int, |text| parse::integer(text)?.try_into().ok(), "a whole number of 32 bits";
    bool, Bool, parse::boolean, "0 or 1, no or yes, off or on, false or true";
    usize, Size, parse::size, "a whole number, or -1 for the largest";
}

/// The environment variable of a parameter.
fn variable(provider: Option<&str>, name: &str) -> String {
    let variable = match provider {
        Some(provider) => format!("FI_{provider}_{name}"),
        None => format!("FI_{name}"),
    };
    variable.to_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn params(values: &[(&'static str, &'static str)]) -> Params {
        let values: HashMap<_, _> = values.iter().copied().collect();
        let environment = move |name: &str| values.get(name).map(|&value| value.to_owned());
        Params::new(Source::new(Box::new(environment), ""))
    }

    #[test]
    fn a_provider_declares_and_reads() {
        let set = params(&[("FI_TCP_TX_SIZE", "0x100"), ("FI_TCP_NODELAY", "Off")]);
        assert_eq!(
            set.declare(Some("tcp"), "tx_size", 7_usize, "slots (default: 7)"),
            0x100
        );
        assert_eq!(
            set.declare(Some("tcp"), "rx_size", 7_usize, "slots (default: 7)"),
            7
        );
        assert!(!set.declare(Some("tcp"), "nodelay", true, "no delay (default: true)"));
        assert_eq!(
            set.declare_optional::<String>(Some("tcp"), "iface", "interface"),
            None
        );
        let listed = set.list();
        assert_eq!(listed.len(), 5);
        assert_eq!(listed[1].name, "FI_TCP_TX_SIZE");
        assert_eq!(listed[1].help, "tcp: slots (default: 7)");
        assert_eq!(listed[1].value.as_deref(), Some("0x100"));
        assert_eq!(listed[4].kind, ParamType::String);
        set.undefine("tcp");
        assert_eq!(set.list().len(), 1);
    }

    #[test]
    fn errors_say_what_is_missing() {
        let set = params(&[("FI_UNIVERSE_SIZE", "many")]);
        assert_eq!(set.get::<usize>(None, "universe_size"), Err(Errno::ENOENT));
        assert_eq!(
            set.declare(None, "universe_size", 256_usize, "peers (default: 256)"),
            256
        );
        assert_eq!(set.get::<usize>(None, "universe_size"), Err(Errno::EINVAL));
        assert_eq!(set.get::<bool>(None, "universe_size"), Err(Errno::EINVAL));
        set.define(None, "hook", ParamType::String, "hooks");
        assert_eq!(set.get::<String>(None, "hook"), Err(Errno::ENODATA));
    }

    #[test]
    fn numbers_out_of_bounds_are_the_nearest_and_logged() {
        for (text, used, is_logged) in [
            ("4096", 4096, false),
            ("8192", 4096, true),
            ("3", 16, true),
            ("-1", 4096, false),
        ] {
            let set = params(&[("FI_TCP_MAX_INJECT", text)]);
            let before = crate::log::warnings();
            let found = set.declare_bounded(Some("tcp"), "max_inject", 0, &(16..=4096_usize), "");
            assert_eq!(found, used, "{text}");
            assert_eq!(
                crate::log::warnings() - before,
                u64::from(is_logged),
                "{text}"
            );
        }
        let unset = params(&[]).declare_bounded(None, "max_inject", 0, &(16..=4096_usize), "");
        assert_eq!(unset, 0);
    }

    #[test]
    fn what_has_no_effect_says_why() {
        let set = params(&[("FI_SHM_USE_XPMEM", "1")]);
        let unused = Unused {
            name: "use_xpmem",
            kind: ParamType::Bool,
            why: "there is no xpmem",
        };
        set.define_unused(Some("shm"), &[unused]);
        let listed = &set.list()[1];
        assert_eq!(listed.help, "shm: no effect: there is no xpmem");
        assert_eq!(listed.value.as_deref(), Some("1"));
        assert!(listed.is_unused);
        set.define(Some("shm"), "use_xpmem", ParamType::Bool, "there is now");
        assert!(!set.list()[1].is_unused);
    }

    #[test]
    fn declaring_again_replaces() {
        let set = params(&[]);
        set.define(Some("tcp"), "x", ParamType::Int, "old");
        set.define(Some("tcp"), "x", ParamType::Bool, "new");
        let listed = set.list();
        assert_eq!(listed.len(), 2);
        assert_eq!(
            (listed[1].kind, listed[1].help.as_str()),
            (ParamType::Bool, "tcp: new")
        );
    }
}
