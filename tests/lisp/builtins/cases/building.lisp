(vector 1 nil :a) => [1 nil :a]
(vector) => []
(count (vector [] {})) => 2
(list 1 2) => [1 2]
(list) => []
(first (list :a)) => :a
(vec #{2 1}) => [1 2]
(vec {:a 1}) => [[:a 1]]
(vec nil) => []
(vec 1) !! vec: expects a collection
(set [1 1 2]) => #{1 2}
(set [true 1 [1] {:a 1} {:a 1}]) => #{true 1 [1] {:a 1}}
(set {:a 1}) => #{[:a 1]}
(set nil) => #{}
(set 5) !! set: expects a collection
(hash-set 1 2 1) => #{1 2}
(hash-set) => #{}
(sorted-set 3 1) => #{1 3}
(count (sorted-set)) => 0
(vec (sorted-set 2 1)) => [1 2]
(contains? (hash-set :a) :a) => true
(hash-map :a 1 [1] 2) => {:a 1 [1] 2}
(hash-map) => {}
(hash-map :a) !! hash-map: expects alternating keys and values
(array-map :b 1 :a 2) => {:a 2 :b 1}
(array-map) => {}
(array-map 1) !! odd number
(sorted-map :b 1) => {:b 1}
(keys (sorted-map :b 1 :a 2)) => [:a :b]
(sorted-map :b) !! odd number
(zipmap [:a :b] [1 2 3]) => {:a 1 :b 2}
(zipmap [true 1] ["t" "1"]) => {true "t" 1 "1"}
(zipmap [] [1]) => {}
(zipmap [:a] 1) !! zipmap: expects a collection
(conj [1] 2 3) => [1 2 3]
(conj nil 1) => [1]
(conj #{1} 1 2) => #{1 2}
(conj {:a 1} [:b 2] {:c 3}) => {:a 1 :b 2 :c 3}
(conj {:a 1} nil) => {:a 1}
(conj [1] nil) => [1 nil]
(conj {:a 1} [:b]) !! conj: expects [key value] pairs
(conj 1 [2]) !! conj: expects a vector, map or set, got an integer
(into [1] #{3 2}) => [1 2 3]
(into {} [[:a 1] [:a 2]]) => {:a 2}
(into #{1} [1 2]) => #{1 2}
(into nil [1]) => [1]
(into {"a" 1} {:a 2 :b 3}) => {"a" 2 :b 3}
(into {"a" 1} [[:a 2] ["a" 3]]) => {"a" 3}
(into {} [["a" 1] [:b 2]]) => {"a" 1 :b 2}
(into {"a" 1} [[:b 2] nil {:a 3} ["b" 4]]) => {"a" 3 :b 4}
(conj {"a" 1} {:a 2}) => {"a" 2}
(conj {"a" 1} [:a 2] [:b 3]) => {"a" 2 :b 3}
(into {:a 1} {:b 2}) => {:a 1 :b 2}
(into [] {:a 1}) => [[:a 1]]
(into {} [1]) !! into: expects [key value] pairs
(into "a" [1]) !! into: expects a vector, map or set, got a string
(empty [1]) => []
(empty {:a 1}) => {}
(empty #{1}) => #{}
(empty nil) => nil
(empty "a") => nil
(cons 1 [2]) => [1 2]
(cons 1 nil) => [1]
(cons 0 #{1}) => [0 1]
(cons 1 2) !! cons: expects a collection
(range 3) => [0 1 2]
(range 0) => []
(range 5 1) => []
(range 1 2 0.5) => [1.0 1.5]
(range 5 0 -2) => [5 3 1]
(range -3) => []
(range 0 1 0) !! range: a step of 0
(range "3") !! range: expects a number, got a string
(repeat 3 :x) => [:x :x :x]
(repeat 0 1) => []
(repeat -1 1) => []
(repeat "3" 1) !! repeat: expects a number of items
(replicate 2 nil) => [nil nil]
(replicate 0 1) => []
(replicate nil 1) !! expects a number of items
(repeatedly 2 (fn [] 7)) => [7 7]
(repeatedly 0 (fn [] 7)) => []
(repeatedly 2 inc) !! expects 1 argument, got 0
(iterate 3 inc 0) => [0 1 2]
(iterate 1 inc 0) => [0]
(iterate 0 inc 0) => []
(cycle 5 [1 2]) => [1 2 1 2 1]
(cycle 3 []) => []
(cycle 0 [1]) => []
(doall (map inc [1])) => [2]
(doall nil) => nil
(doall #{1}) => #{1}
(run! inc [1 2]) => nil
(run! inc nil) => nil
(run! inc 5) !! run!: expects a collection
(run! 5 [1]) !! not callable
