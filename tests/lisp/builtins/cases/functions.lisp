(identity 5) => 5
(identity nil) => nil
(identity) !! identity
((constantly 1)) => 1
((constantly 1) 2 3) => 1
(map (constantly nil) [1]) => [nil]
(constantly) !! constantly
(apply + [1 2 3]) => 6
(apply + 1 2 [3]) => 6
(apply max #{1 5}) => 5
(apply str nil) => ""
(apply map vector [[1 2] [3 4]]) => [[1 3] [2 4]]
(apply :a [{:a 1}]) => 1
(apply + 5) !! apply: expects a collection, got an integer
(apply inc [1 2]) !! expects 1 argument, got 2
(apply 5 [1]) !! not callable
(apply +) !! apply
(deref (future (+ 1 1))) => 2
(map deref [(future 1) (future :a)]) => [1 :a]
(deref (future (throw "no"))) !! no
(deref 1) !! deref: expects a future, got an integer
((partial + 1 2) 3) => 6
((partial :a) {:a 1}) => 1
((partial vector)) => []
((partial inc 1) 2) !! expects 1 argument, got 2
(partial 5) !! partial: expects a function, got an integer
((comp inc count) [1 2]) => 3
((comp)  5) => 5
((comp :name :user) {:user {:name "x"}}) => "x"
((comp first (partial map inc)) [1]) => 2
((comp inc 5) 1) !! comp: expects a function, got an integer
((comp 5 inc) 1) !! not callable
((complement even?) 1) => true
(filter (complement :a) [{:a 1} {}]) => [{}]
((complement nil?) nil) => false
(complement 1) !! complement: expects a function
((juxt inc dec) 1) => [2 0]
((juxt :a) {:a 1}) => [1]
(sort-by (juxt :a :b) [{:a 2 :b 1} {:a 1 :b 2}]) => [{:a 1 :b 2} {:a 2 :b 1}]
(juxt 1) !! juxt: expects a function, got an integer
((fnil inc 0) nil) => 1
((fnil inc 0) 5) => 6
((fnil + 1 2) nil nil) => 3
(update {} :n (fnil conj []) 1) => {:n [1]}
(fnil 5 0) !! fnil: expects a function
((every-pred pos? even?) 2) => true
((every-pred pos? even?) 2 3) => false
((every-pred)  1) => true
((every-pred 5) 1) !! not callable
((all-of (where :a = 1)) {:a 1}) => true
(filter (all-of) [1]) => [1]
(filter (all-of even? (fn [x] (> x 2))) [2 3 4]) => [4]
((some-fn :a :b) {:b 2}) => 2
((some-fn even?) 1 2) => true
((some-fn :a) {}) => nil
((some-fn 1) 1) !! not callable
(filter (any-of even? (where :a)) [{:a 1} {}]) !! even?: expects an integer, got a map
(filter (any-of (where :a) (where :b)) [{:a 1} {:b 1} {}]) => [{:a 1} {:b 1}]
(filter (any-of) [1 2]) => []
(filter (none-of even?) [1 2]) => [1]
(filter (none-of) [1 2]) => [1 2]
((none-of 5) 1) !! not callable
(apply max []) !! max expects at least 1 argument
(apply max-key []) !! max-key expects
