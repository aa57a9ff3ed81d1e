//! Lists of all variants of an enum, held to the enum by the compiler.

/// Gives an enum without fields a constant `ALL` with every variant, in the order of the list. A variant that is missing from the
/// list leaves its match incomplete, one that is there twice leaves an arm unreachable: neither compiles.
#[macro_export]
macro_rules! every {
    ($(#[$doc:meta])* $visible:vis $name:ident: $($variant:ident),+ $(,)?) => {
        impl $name {
            $(#[$doc])*
            $visible const ALL: [Self; [$(stringify!($variant)),+].len()] = [$(Self::$variant),+];
        }

        #[deny(unreachable_patterns)]
        const _: fn($name) = |variant| match variant {
            $($name::$variant => {})+
        };
    };
}

#[cfg(test)]
mod tests {
    //! Proves the order and the length. That what is missing does not compile is the compiler's promise about matches.

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Colour {
        Red,
        Green,
    }
    every! {
        /// Every colour.
        pub(super) Colour: Green, Red
    }

    #[test]
    fn all_stand_in_the_order_of_the_list() {
        assert_eq!(Colour::ALL, [Colour::Green, Colour::Red]);
    }
}
