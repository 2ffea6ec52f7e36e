(+ 1 2 3) => 6
(+) => 0
(+ 1.5 1) => 2.5
(+ 9007199254740993 1) => 9007199254740994
(+ 1 nil) !! +: expects numbers, got nil
(+ "a" "b") !! +: expects numbers, got a string
(+ true 1) !! +: expects numbers, got a boolean
(+ [1 2]) !! +: expects numbers, got a vector
(- 10 3 2) => 5
(- 5) => -5
(- 1.5 1) => 0.5
(- nil) !! -: expects numbers, got nil
(* 2 3 4) => 24
(*) => 1
(* 2 0.5) => 1.0
(* 99999999999 99999999999) => 9999999999800000000001
(* "a" 3) !! *: expects numbers, got a string
(* [1] 3) !! *: expects numbers, got a vector
(/ 10 2) => 5.0
(/ 2) => 0.5
(/ 100 5 2) => 10.0
(/ 1 0) !! /: division by zero
(/ 1 0.0) !! /: division by zero
(/ 1 nil) !! /: expects numbers, got nil
(mod 10 3) => 1
(mod -1 5) => 4
(mod 1 -5) => -4
(mod 5.5 2) => 1.5
(mod 1 0) !! mod: division by zero
(mod "a" 1) !! mod: expects numbers
(rem -10 3) => -1
(rem 10 -3) => 1
(rem 5.5 2) => 1.5
(rem 1 0) !! rem: division by zero
(quot 10 3) => 3
(quot -10 3) => -3
(quot 7.5 2) => 3.0
(quot 1 0) !! quot: division by zero
(inc 1) => 2
(inc -0.5) => 0.5
(inc nil) !! inc: expects a number, got nil
(dec 1) => 0
(dec 0.5) => -0.5
(dec "1") !! dec: expects a number, got a string
(abs -5) => 5
(abs -2.5) => 2.5
(abs :a) !! abs: expects a number, got a keyword
(max 1 5 3) => 5
(max 1) => 1
(max 1 2.5) => 2.5
(max [1 2]) !! max: expects numbers, got a vector
(max 1 nil) !! max: expects numbers, got nil
(min 3 1 2) => 1
(min 1) => 1
(min 1.5 2) => 1.5
(min "a" "b") !! min: expects numbers, got a string
(pow 2 10) => 1024
(pow 2 -1) => 0.5
(pow 4 0.5) => 2.0
(pow -1 3) => -1
(pow 0 0) => 1
(pow 0 -1) !! pow: division by zero
(pow -8 0.5) !! pow: a negative number has no fractional powers
(str (pow -2 ##NaN)) => "##NaN"
(pow -2 ##Inf) => ##Inf
(pow 10.0 400) !! pow: the result is too large
(pow 2 "3") !! pow: expects numbers
(expt 2 3) => 8
(expt 1 1000000000) => 1
(expt nil 2) !! pow: expects numbers, got nil
(Math/pow 3 2) => 9
(sqrt 16) => 4.0
(sqrt 2.25) => 1.5
(sqrt -1) !! sqrt: a negative number has no square root
(Math/sqrt 9) => 3.0
(exp 0) => 1.0
(exp 1000) !! exp: the result is too large
(exp "1") !! exp: expects a number
(log 1) => 0.0
(log 0) !! log: only positive numbers
(log nil) !! log: expects a number
(log10 1000) => 3.0
(log10 0.1) => -1.0
(log10 -1) !! log10: only positive numbers
(floor 2.7) => 2
(floor -2.1) => -3
(floor 5) => 5
(floor "2") !! floor: expects a number
(ceil 2.1) => 3
(ceil -2.9) => -2
(ceil nil) !! ceil: expects a number, got nil
(round 2.5) => 3
(round -2.5) => -3
(round 2.4) => 2
(round 7) => 7
(round 3.14159 2) => 3.14
(round 2.675 2) => 2.68
(round 1234 -2) => 1200
(round 5 2) => 5
(round 0.49999999999999994) => 0
(round 4503599627370497.0) => 4503599627370497
(round -4503599627370497.0) => -4503599627370497
(round "2") !! round: expects a number
(round 2.5 400) !! round: expects a number of digits
(quot ##Inf 2) !! quot: the dividend is not finite
(rem ##NaN 2) !! rem: the dividend is not finite
(quot 1e308 1e-10) => ##Inf
