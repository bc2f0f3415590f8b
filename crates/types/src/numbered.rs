//! The macro for enumerations whose variants are numbers.

/// Defines an enum whose variants are numbers of an interface or a protocol: the enum, which is stored
/// as `$repr`, all its variants, and the conversions from and to `$number`. Where each variant has a
/// text behind `=>`, that is its `Display`.
#[macro_export]
macro_rules! numbered {
    ($(#[$meta:meta])* pub enum $name:ident: $repr:ident as $number:ident {
        $($(#[$vmeta:meta])* $variant:ident = $value:literal => $text:literal,)+
    }) => {
        $crate::numbered! {
            $(#[$meta])*
            pub enum $name: $repr as $number { $($(#[$vmeta])* $variant = $value,)+ }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
    ($(#[$meta:meta])* pub enum $name:ident: $repr:ident as $number:ident {
        $($(#[$vmeta:meta])* $variant:ident = $value:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($repr)]
        pub enum $name { $($(#[$vmeta])* $variant = $value,)+ }

        impl $name {
            /// Every variant, in the order of their numbers.
            pub const ALL: [Self; [$($value),+].len()] = [$(Self::$variant),+];

            /// The variant with this number, or `None` for a number that names none.
            #[must_use]
            pub const fn from_number(number: $number) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// The number.
            #[inline]
            #[must_use]
            pub const fn number(self) -> $number {
                self as $number
            }
        }
    };
}
