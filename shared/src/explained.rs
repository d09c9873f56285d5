//! Enums whose variants users see by name, with the texts that explain them.

/// Defines an enum whose variants users see by name. For each variant: its meaning, and what to do about it, `None` if
/// nothing; or `= Name`, the [`Reason`](crate::reason::Reason) with the same texts. Both are whole sentences. `as`
/// gives a variant another name than its own.
///
/// `kubectl asya explain`, `docs/reference/` and the messages of conditions have the texts from here.
macro_rules! explained {
    (
        $(#[$attribute:meta])*
        pub enum $type_:ident {
            $($name:ident $(as $shown:literal)? $(= $reason:ident)? $(: $meaning:literal, $remedy:expr)?;)+
        }
    ) => {
        $(#[$attribute])*
        pub enum $type_ {
            $(
                $(#[doc = $meaning])?
                $(#[doc = concat!("As [`Reason::", stringify!($reason), "`](crate::reason::Reason).")])?
                $name,
            )+
        }

        impl $type_ {
            /// All variants, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name that users see. Stable.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $crate::explained::shown_name!($name $($shown)?),)+
                }
            }

            /// What it means, in whole sentences.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => { $($meaning)? $($crate::reason::Reason::$reason.meaning())? })+
                }
            }

            /// What to do, in whole sentences; `None` if nothing.
            #[must_use]
            pub const fn remedy(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => { $($remedy)? $($crate::reason::Reason::$reason.remedy())? })+
                }
            }
        }

        impl ::std::fmt::Display for $type_ {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

/// Defines an enum whose variants users see by name, with a meaning but nothing to do about it: the doc comment, which
/// therefore names no requirement. A last variant may hold an enum that [`explained`] defines.
macro_rules! described {
    (
        $(#[$attribute:meta])*
        pub enum $type_:ident {
            $($(#[doc = $meaning:literal])+ $name:ident,)+
            $(@of $(#[$of_attribute:meta])* $of:ident($inner:ty),)?
        }
    ) => {
        $(#[$attribute])*
        pub enum $type_ {
            $($(#[doc = $meaning])+ $name,)+
            $($(#[$of_attribute])* $of($inner),)?
        }

        impl $type_ {
            /// All variants that hold no other enum, in the order of the reference.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The name that users see. Stable.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    $(Self::$of(inner) => inner.as_str(),)?
                }
            }

            /// What it means, as a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                    $(Self::$of(inner) => inner.meaning(),)?
                }
            }
        }
    };
}

macro_rules! shown_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $shown:literal) => {
        $shown
    };
}

pub(crate) use {described, explained, shown_name};
