(= 1 1.0) => true
(= 1 1 1) => true
(= 1 1 2) => false
(= nil false) => false
(= 1 true) => false
(= :a "a") => false
(= [1 [2]] [1.0 [2.0]]) => true
(= {:a [1]} {:a [1.0]}) => true
(= #{1 2} #{2 1}) => true
(= [1] #{1}) => false
(= [true] [1]) => false
(= [0] [false]) => false
(= "a") => true
(=) !! =
(== 1 1.0) => true
(== 1 2) => false
(== "a" "a") => true
(not= 1 2) => true
(not= 1 1.0) => false
(not= [1] [1]) => false
(not=) !! not=
(< 1 2 3) => true
(< 1 3 2) => false
(< 1) => true
(< "a" "b") !! <: expects numbers, got a string
(< nil 1) !! <: expects numbers, got nil
(> 3 2 1) => true
(> 1 2) => false
(> [2] [1]) !! >: expects numbers, got a vector
(<= 1 1 2) => true
(<= 2 1) => false
(<= 1 :a) !! <=: expects numbers, got a keyword
(>= 2 2 1) => true
(>= 1 2) => false
(>= true false) !! >=: expects numbers, got a boolean
(compare 1 2) => -1
(compare "b" "a") => 1
(compare :a :a) => 0
(compare nil 1) => -1
(compare [1 2] [1 3]) => -1
(compare 1 "a") !! cannot compare
(compare {} {}) !! no order
(not nil) => true
(not false) => true
(not 0) => false
(not) !! not
(compare [1 2] [3]) => 1
(sort [[1 2] [3] [2 1]]) => [[3] [1 2] [2 1]]
