//! A model checker on the transition function, and whole histories of the scheduler simulated from a seed.

mod checker;
mod simulation;
