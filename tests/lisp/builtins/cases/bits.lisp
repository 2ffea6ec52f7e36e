(bit-and 12 10) => 8
(bit-and 7 6 4) => 4
(bit-and 1.5 1) !! bit-and: expects an integer, got a float
(bit-or 12 10) => 14
(bit-or 1 2 4) => 7
(bit-or 1 nil) !! bit-or: expects an integer
(bit-xor 12 10) => 6
(bit-xor 1 1) => 0
(bit-xor "a" 1) !! bit-xor: expects an integer
(bit-not 0) => -1
(bit-not -1) => 0
(bit-not :a) !! bit-not: expects an integer
(bit-shift-left 1 4) => 16
(bit-shift-left 3 0) => 3
(bit-shift-left 1 -1) !! the number of places is out of range
(bit-shift-right 16 4) => 1
(bit-shift-right -1 5) => -1
(bit-shift-right 1 "a") !! bit-shift-right: expects an integer
(bit-test 4 2) => true
(bit-test 4 1) => false
(bit-test 4 :a) !! bit-test: expects an integer
